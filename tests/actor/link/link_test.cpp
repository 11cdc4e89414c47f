// The contract of links over wires within one process, by a fake clock; and what can only be shown
// there.

#include "tests/actor/link/contract.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::link;
using namespace troupe::link::contract;
using namespace std::chrono_literals;

namespace {

/// More than any of these tests needs: messages that go round for ever end in a failure.
constexpr int steps_max = 200'000;

/// Loses what goes out of one process while `cut`.
struct cuttable : wire {
  bool cut = false;
  void send(const caf::actor& from, const caf::actor& to, caf::message what) override {
    if (!cut) caf::send_as(from, to, std::move(what));
  }
};

struct in_process : scene {
  explicit in_process(const std::string& cluster_of_a)
      : scene(first, second), first(machine.system, "a", 1, cluster_of_a) {
    first.context.through = from_a;
    second.context.through = from_b;
  }
  ~in_process() override {
    for (auto* s : {&a, &b})
      for (const auto& x : s->everybody()) machine.own(x);
  }

  void connect() override {
    auto listener = spawn_listener(machine.system, b.shared());
    b.actors.push_back(listener);
    a.actors.push_back(spawn_link(machine.system, a.shared(), listener, a.context.owner));
  }
  void cut(const side& speaker) override { (&speaker == &a ? from_a : from_b)->cut = true; }
  void mend() override { from_a->cut = from_b->cut = false; }
  void pass(milliseconds time) override { machine.advance(time); }
  bool until(const std::function<bool()>& condition, milliseconds at_most) override {
    for (auto left = at_most;; left -= 50ms) {
      int steps = 0;
      while (steps < steps_max && machine.scheduler.try_run_once()) ++steps;
      REQUIRE(steps < steps_max);
      if (condition()) return true;
      if (left <= 0ms) return false;
      machine.scheduler.advance_time(50ms);
    }
  }

  test::deterministic_system machine;
  side first;
  side second{machine.system, "b", 2};
  std::shared_ptr<cuttable> from_a = std::make_shared<cuttable>();
  std::shared_ptr<cuttable> from_b = std::make_shared<cuttable>();
};

}  // namespace

std::unique_ptr<scene> contract::make_scene(const std::string& cluster_of_a) {
  return std::make_unique<in_process>(cluster_of_a);
}

TEST_CASE("an idle link stays for long") {
  in_process s{"c"};
  s.link();
  s.pass(120s);
  CHECK(s.a.heard->downs.size() == 0);
  CHECK(s.b.heard->downs.size() == 0);
}

TEST_CASE("silence is what a cut is noticed by, at the earliest after its limit") {
  in_process s{"c"};
  s.link();
  s.pass(10s);
  s.cut(GENERATE(true, false) ? s.a : s.b);
  s.pass(3s);
  CHECK(s.a.heard->downs.size() == 0);
  CHECK(s.b.heard->downs.size() == 0);
  s.pass(3s);
  REQUIRE(s.a.heard->downs.size() == 1);
  REQUIRE(s.b.heard->downs.size() == 1);
  const auto reasons = s.a.heard->downs.all()[0].reason + s.b.heard->downs.all()[0].reason;
  CHECK(reasons.find("no echo") != std::string::npos);
}

TEST_CASE(
    "what came to a process while it stood still, for longer than silence may last, is lost") {
  in_process s{"c"};
  const auto at = s.link();
  const auto sink = s.b.bind("sink", 1);
  s.pass(900ms);
  // Host b has had an echo since it last said something: its peer counts from there.
  msg::draft<msg::Ping> d;
  d->setSequence(2);
  d->setSeen(1);
  caf::send_as(at.a.link, at.b.link, std::move(d).freeze().value());
  s.machine.run();
  // In the mailbox of b's end before anything of b runs again, its own tick included.
  caf::send_as(at.a.link, at.b.link, msg::make_parcel({"sink", 1}, {}, text("on its way")));
  const auto longer = GENERATE(false, true);
  s.machine.scheduler.advance_time(longer ? 3200ms : 3000ms);
  s.machine.run();
  CHECK(sink.got->size() == (longer ? 0 : 1));
  CHECK(s.b.heard->downs.size() == (longer ? 1 : 0));
}

TEST_CASE("a listener that doesn't answer is given up") {
  in_process s{"c"};
  const auto mute = s.b.receiver();
  bool ended = false;
  auto l = spawn_link(s.machine.system, s.a.shared(), mute.actor, s.a.context.owner);
  s.a.actors.push_back(l);
  l->attach_functor([&](const caf::error&) { ended = true; });
  s.pass(2s);
  CHECK_FALSE(ended);
  s.pass(2s);
  CHECK(ended);
  CHECK(s.a.heard->ups.size() == 0);
}
