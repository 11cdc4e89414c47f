// What goes wrong in the middle: the client's answer is the same, or it is told, and nobody goes on
// holding anything.

#include "tests/actor/workers/fleet.hpp"

#include "messages/base/planted.hpp"
#include "messages/job_codes.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

fleet::wish long_wish() {
  fleet::wish w;
  w.prompt = std::string(700, 'p');
  w.max_tokens = 40;
  return w;
}

}  // namespace

TEST_CASE("cancelled at any moment, both workers are free at once") {
  for (int after = 0; after < 60; ++after) {
    INFO("turns: " << after);
    fleet f;
    f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
    f.add("decode/p/a.0", 2, msg::Role::DECODE);
    auto x = f.ask(long_wish());
    f.turns(after);
    f.hub.front->cancel(x.id, "the client went away");
    f.check_all_idle();
    CHECK_FALSE(x.a->failure);
  }
}

TEST_CASE("prefill dies at any moment: the other one does it, and the answer is the same") {
  const auto expected = reference(long_wish())->ids;
  for (int after = 1; after < 45; after += 2) {
    INFO("turns: " << after);
    fleet f;
    auto& p0 = f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
    auto& p1 = f.add("prefill/p/a.1", 2, msg::Role::PREFILL);
    f.add("decode/p/a.0", 3, msg::Role::DECODE);
    auto x = f.ask(long_wish());
    f.turns(after);
    f.kill(p0.host->routes() > 0 ? p0 : p1);
    f.finish({x.a});
    REQUIRE(x.a->end);
    CHECK(x.a->ids == expected);
    f.check_all_idle();
  }
}

TEST_CASE(
    "decode dies at any moment: the stream goes on elsewhere without a token lost or repeated") {
  const auto expected = reference(long_wish());
  for (int after = 1; after < 70; after += 3) {
    INFO("turns: " << after);
    fleet f;
    f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
    auto& d0 = f.add("decode/p/a.0", 2, msg::Role::DECODE);
    auto& d1 = f.add("decode/p/a.1", 3, msg::Role::DECODE);
    auto x = f.ask(long_wish());
    f.turns(after);
    f.kill(d0.host->routes() > 0 ? d0 : d1);
    f.finish({x.a});
    REQUIRE(x.a->end);
    CHECK(x.a->ids == expected->ids);
    CHECK(x.a->text == expected->text);
    f.check_all_idle();
  }
}

TEST_CASE("a worker of the same host dies without the transport's noticing: its launcher tells") {
  const auto expected = reference(long_wish())->ids;
  const bool decode_dies = GENERATE(true, false);
  for (int after = 1; after < 60; after += 3) {
    INFO((decode_dies ? "decode" : "prefill") << " after turns: " << after);
    fleet f;
    auto& p0 = f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
    auto& p1 = f.add("prefill/p/a.1", 2, msg::Role::PREFILL);
    auto& d0 = f.add("decode/p/a.0", 3, msg::Role::DECODE);
    auto& d1 = f.add("decode/p/a.1", 4, msg::Role::DECODE);
    auto x = f.ask(long_wish());
    f.turns(after);
    auto& one = decode_dies ? d0 : p0;
    auto& other = decode_dies ? d1 : p1;
    f.kill(one.host->routes() > 0 ? one : other, true);
    f.finish({x.a});
    REQUIRE(x.a->end);
    CHECK(x.a->ids == expected);
    f.check_all_idle();
  }
}

TEST_CASE("who is told of a death by name alone knows whose buffers that concerns") {
  for (int after = 5; after < 60; after += 9) {
    INFO("after turns: " << after);
    fleet f;
    f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
    auto& d0 = f.add("decode/p/a.0", 3, msg::Role::DECODE);
    f.add("decode/p/a.1", 4, msg::Role::DECODE);
    auto x = f.ask(long_wish());
    f.turns(after);
    f.names_only = true;
    f.kill(d0, true);
    f.finish({x.a});
    REQUIRE(x.a->end);
    f.check_all_idle();
  }
}

TEST_CASE("a worker of role both dies in the middle of several choices") {
  auto w = long_wish();
  w.choices = 2;
  const auto expected = reference(w);
  for (int after = 10; after < 60; after += 5) {
    INFO("turns: " << after);
    fleet f;
    auto& b0 = f.add("both/p/a.0", 1, msg::Role::BOTH);
    auto& b1 = f.add("both/p/a.1", 2, msg::Role::BOTH);
    auto x = f.ask(w);
    f.turns(after);
    f.kill(b0.host->routes() > 0 ? b0 : b1);
    f.finish({x.a});
    REQUIRE(x.a->end);
    CHECK(x.a->ids == expected->ids);
    CHECK(x.a->text == expected->text);
    f.check_all_idle();
  }
}

TEST_CASE("a piece is lost on its way: both legs are told, and the next attempt succeeds") {
  const auto expected = reference(long_wish())->ids;
  fleet f;
  f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
  f.add("decode/p/a.0", 2, msg::Role::DECODE);
  f.fabric->fail_pieces(1);
  auto x = f.ask(long_wish());
  f.finish({x.a});
  REQUIRE(x.a->end);
  CHECK(x.a->ids == expected);
  CHECK_THAT(f.hub.front->timeline_json(x.name), Catch::Contains("\"error\":"));
  f.check_all_idle();
}

TEST_CASE("the hub dies: its jobs are cancelled, and its clients told") {
  fleet f;
  f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
  f.add("decode/p/a.0", 2, msg::Role::DECODE);
  auto x = f.ask(long_wish());
  f.turns(12);
  caf::anon_send_exit(f.hub.actor, caf::exit_reason::kill);
  f.settle();
  f.advance(5s);
  CHECK(x.a->failure);
  f.check_all_idle();
}

TEST_CASE(
    "a draining worker finishes what it has, takes nothing new, and says when it holds nothing") {
  fleet f;
  auto& b0 = f.add("both/p/a.0", 1, msg::Role::BOTH);
  auto x = f.ask(long_wish());
  f.turns(12);
  msg::draft<msg::EngineCommand> d;
  auto h = d->initHold();
  h.setWithinMs(10'000);
  h.setMoveAfterMs(10'000);
  f.office->send({b0.name, 1}, {"launcher/test", 0}, *std::move(d).freeze());
  f.run();
  // The directory here does not know yet: the worker itself refuses.
  auto late = f.ask({});
  f.turns(3);
  CHECK_FALSE(b0.stopped);
  f.finish({x.a});
  CHECK(x.a->end);
  f.advance(1s);
  CHECK_FALSE(b0.stopped);  // its launcher ends it, or it is released
  f.finish({late.a});
  CHECK(late.a->failure);
  auto statuses = f.take_envelopes<msg::EngineStatus>(f.launcher);
  REQUIRE_FALSE(statuses.empty());
  CHECK(msg::view<msg::EngineStatus> { statuses.back().second } -> getEntry().getState() ==
        msg::EntryState::DRAINING);
  msg::draft<msg::EngineCommand> back;
  back->setRelease();
  f.office->send({b0.name, 1}, {"launcher/test", 0}, *std::move(back).freeze());
  f.run();
  CHECK(f.answered({})->end);
}

TEST_CASE("a drain that takes too long moves its jobs elsewhere") {
  const auto expected = reference(long_wish())->ids;
  fleet f;
  auto& b0 = f.add("both/p/a.0", 1, msg::Role::BOTH);
  auto& b1 = f.add("both/p/a.1", 2, msg::Role::BOTH);
  auto x = f.ask(long_wish());
  f.turns(14);
  auto& at = b0.host->routes() > 0 ? b0 : b1;
  msg::draft<msg::EngineCommand> d;
  auto h = d->initHold();
  h.setWithinMs(100);
  h.setMoveAfterMs(100);
  f.office->send({at.name, at.generation}, {"launcher/test", 0}, *std::move(d).freeze());
  f.advance(300ms);
  f.finish({x.a});
  REQUIRE(x.a->end);
  CHECK(x.a->ids == expected);
  f.check_all_idle();
}

TEST_CASE("a job that its engine forgets goes on elsewhere, and nobody else notices") {
  struct plant {
    plant() { planted::present = planted::bug::forget_job; }
    ~plant() { planted::present = planted::bug::none; }
  };
  const bool apart = GENERATE(false, true);
  const auto expected = reference(long_wish());
  const plant bug;
  fleet f;
  for (int i = 0; i < 2; ++i) {
    const auto index = std::to_string(i);
    const auto generation = static_cast<std::uint64_t>(i) + 1;
    if (apart) f.add("prefill/p/a." + index, generation + 2, msg::Role::PREFILL);
    f.add((apart ? "decode/p/a." : "both/p/a.") + index, generation,
          apart ? msg::Role::DECODE : msg::Role::BOTH);
  }
  std::vector<fleet::asked> asked;
  std::vector<std::shared_ptr<answer>> answers;
  for (int i = 0; i < 24; ++i) {
    asked.push_back(f.ask(long_wish()));
    answers.push_back(asked.back().a);
    f.turns(2);
  }
  f.finish(answers);
  std::size_t forgotten = 0;
  for (const auto& x : asked) {
    REQUIRE(x.a->end);
    CHECK(x.a->ids == expected->ids);
    CHECK(x.a->text == expected->text);
    const auto timeline = f.hub.front->timeline_json(x.name);
    if (timeline.find("\"error\":\"") == std::string::npos) continue;
    ++forgotten;
    CHECK_THAT(timeline, Catch::Contains(msg::job_stalled));
  }
  CHECK(forgotten >= 2);
  CHECK(forgotten <= asked.size() / 2);
  std::map<std::string, std::uint64_t> stalls;
  for (auto& [from, e] : f.take_envelopes<msg::WorkerReport>(f.launcher)) {
    msg::view<msg::WorkerReport> r{e};
    stalls[r->getWorker().cStr()] = r->getStalls();
  }
  std::uint64_t sum = 0;
  for (const auto& [worker, count] : stalls) sum += count;
  CHECK(sum >= forgotten);
  f.check_all_idle();
}
