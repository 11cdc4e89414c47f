#include "tests/actor/link/contract.hpp"

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::link;
using namespace troupe::link::contract;
using namespace std::chrono_literals;

namespace {

/// A try to connect that came to nothing has ended by then.
constexpr milliseconds one_try{4'000};
constexpr int tries_max = 6;

}  // namespace

both_ends contract::scene::link() {
  const auto at_a = a.heard->ups.size(), at_b = b.heard->ups.size();
  const auto up = [&] { return a.heard->ups.size() > at_a && b.heard->ups.size() > at_b; };
  bool came = false;
  for (int i = 0; i < tries_max && !came; ++i) {
    connect();
    came = until(up, one_try);
  }
  REQUIRE(came);
  return {a.heard->ups.all().back(), b.heard->ups.all().back()};
}

TEST_CASE("both ends come up and know each other", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  CHECK(at.a.peer.host == "b");
  CHECK(at.b.peer.host == "a");
  CHECK(at.a.peer.protocol == protocol_version);
  CHECK(at.b.peer.kind == msg::ProcessKind::NODE);
}

TEST_CASE("parcels go both ways, with sender and generation, in order", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  const auto requests = s->a.bind("requests/a", 1);
  const auto decode = s->b.bind("decode/p/b.0", 5);
  s->a.office->set_route("decode/p/b.0", 5, at.a.link);
  s->b.office->set_route("requests/a", 1, at.b.link);

  std::vector<std::string> said;
  for (int i = 0; i < 500; ++i) {
    said.push_back(std::to_string(i));
    s->a.office->send({"decode/p/b.0", 5}, {"requests/a", 1}, text(said.back()));
    s->b.office->send({"requests/a", 0}, {"decode/p/b.0", 5}, text(said.back()));
  }
  REQUIRE(s->until(
      [&] { return decode.got->size() == said.size() && requests.got->size() == said.size(); },
      patience));
  CHECK(decode.texts() == said);
  CHECK(requests.texts() == said);
  CHECK(decode.got->all()[0].first.from == msg::address{"requests/a", 1});
  CHECK(requests.got->all()[0].first.from == msg::address{"decode/p/b.0", 5});

  // What is for an older incarnation, or for nobody, is counted and lost.
  s->a.office->send({"decode/p/b.0", 4}, {"requests/a", 1}, text("old"));
  CHECK(s->a.office->counters().stale_generation == 1);
  s->a.office->set_route("nobody", 0, at.a.link);
  s->a.office->send({"nobody", 0}, {"requests/a", 1}, text("?"));
  CHECK(s->until([&] { return s->b.office->counters().unknown_name == 1; }, patience));
  CHECK(decode.got->size() == said.size());
}

TEST_CASE("a parcel of about the size that a message may have goes over", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  const auto sink = s->b.bind("sink", 1);
  s->a.office->set_route("sink", 1, at.a.link);
  const std::string large(1'000'000, 'x');
  for (const auto& x : {large, std::string{"small"}, large})
    s->a.office->send({"sink", 1}, {"source", 1}, text(x));
  REQUIRE(s->until([&] { return sink.got->size() == 3; }, patience));
  CHECK(sink.texts() == std::vector{large, std::string{"small"}, large});
}

TEST_CASE("a parcel is never sent back into the link that it came from", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  // An engine sends all that it does not know to its node; the node knows this name as the
  // engine's.
  s->a.office->set_route("decode/p/b.0", 5, at.a.link);
  s->b.office->set_default_route(at.b.link);
  s->a.office->send({"decode/p/b.0", 5}, {"requests/a", 1}, text("?"));
  CHECK(s->until([&] { return s->b.office->counters().no_route == 1; }, patience));
  CHECK(s->a.office->counters().forwarded == 1);
  CHECK(s->b.office->counters().forwarded == 0);
  // What the engine itself says still goes there.
  s->b.office->send({"requests/a", 1}, {"decode/p/b.0", 5}, text("!"));
  CHECK(s->b.office->counters().forwarded == 1);
}

TEST_CASE("a parcel from one peer node is never given to another, so that no ring of nodes has it",
          "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  const auto third = s->b.receiver();  // b's link to host c, which takes host a for its place
  s->a.office->set_route("decode/p/x.0", 5, at.a.link);
  s->b.office->set_route("decode/p/x.0", 5, third.actor);
  s->a.office->send({"decode/p/x.0", 5}, {"requests/a", 1}, text("?"));
  CHECK(s->until([&] { return s->b.office->counters().no_route == 1; }, patience));
  CHECK(s->b.office->counters().forwarded == 0);
  // To an engine of its own a node passes on whatever comes.
  s->b.office->set_route("decode/p/x.0", 5, third.actor, far_end::engine);
  s->a.office->send({"decode/p/x.0", 5}, {"requests/a", 1}, text("!"));
  CHECK(s->until([&] { return third.parcels->size() == 1; }, patience));
  CHECK(s->b.office->counters().forwarded == 1);
}

TEST_CASE("a body of an unknown schema is counted, not delivered", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  const auto x = s->b.bind("x", 0);
  s->a.office->set_route("x", 0, at.a.link);
  auto p = msg::make_parcel({"x", 0}, {}, text("hello"));
  p.schema = 0x1234;
  s->a.office->deliver(p);
  s->a.office->send({"x", 0}, {}, text("known"));
  REQUIRE(s->until([&] { return x.got->size() == 1; }, patience));
  CHECK(x.texts() == std::vector<std::string>{"known"});
  CHECK(s->b.office->counters().unknown_schema == 1);
}

TEST_CASE("an idle link stays", "[contract]") {
  const auto s = make_scene();
  s->link();
  s->pass(8s);
  CHECK(s->a.heard->downs.size() == 0);
  CHECK(s->b.heard->downs.size() == 0);
}

TEST_CASE("a cut in one direction only is noticed at both ends, whichever it is", "[contract]") {
  const bool from_a = GENERATE(true, false);
  const auto s = make_scene();
  const auto old = s->link();
  const auto sink = s->b.bind("sink", 1);
  s->a.office->set_route("sink", 1, old.a.link);
  s->a.office->send({"sink", 1}, {}, text("before"));
  REQUIRE(s->until([&] { return sink.got->size() == 1; }, patience));

  s->cut(from_a ? s->a : s->b);
  if (from_a) s->a.office->send({"sink", 1}, {}, text("on its way"));
  s->pass(2s);
  CHECK(s->a.heard->downs.size() == 0);
  CHECK(s->b.heard->downs.size() == 0);
  REQUIRE(s->until([&] { return s->a.heard->downs.size() == 1 && s->b.heard->downs.size() == 1; },
                   noticed_within - 2s));
  CHECK(s->a.heard->downs.all()[0].peer.host == "b");
  CHECK(s->a.heard->downs.all()[0].link == old.a.link);
  CHECK_FALSE(s->a.office->knows("sink"));

  // They come together again, and what was on its way comes to nobody.
  s->mend();
  const auto at = s->link();
  CHECK(at.a.link != old.a.link);
  caf::anon_send(old.a.link, msg::make_parcel({"sink", 1}, {}, text("said over the old link")));
  s->a.office->set_route("sink", 1, at.a.link);
  s->a.office->send({"sink", 1}, {}, text("after"));
  REQUIRE(s->until(
      [&] {
        const auto all = sink.texts();
        return !all.empty() && all.back() == "after";
      },
      patience));
  CHECK(sink.texts() == std::vector<std::string>{"before", "after"});
  CHECK(s->a.heard->downs.size() == 1);
  CHECK(s->b.heard->downs.size() == 1);
}

TEST_CASE("a short cut is survived, and what comes through it stays in order", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  const auto sink = s->b.bind("sink", 1);
  s->a.office->set_route("sink", 1, at.a.link);
  int next = 0;
  const auto say = [&](int count) {
    for (int i = 0; i < count; ++i)
      s->a.office->send({"sink", 1}, {}, text(std::to_string(next++)));
  };
  say(10);
  REQUIRE(s->until([&] { return sink.got->size() == 10; }, patience));
  s->cut(s->a);
  say(10);
  s->pass(1500ms);
  s->mend();
  say(10);
  const auto last = std::to_string(next - 1);
  CHECK(s->until(
      [&] {
        const auto all = sink.texts();
        return !all.empty() && all.back() == last;
      },
      patience));
  s->pass(6s);
  CHECK(s->a.heard->downs.size() == 0);
  CHECK(s->b.heard->downs.size() == 0);
  std::vector<int> numbers;
  for (const auto& x : sink.texts()) numbers.push_back(std::stoi(x));
  CHECK(numbers.size() >= 20);
  CHECK(std::is_sorted(numbers.begin(), numbers.end(), std::less_equal<int>{}));  // none twice
}

TEST_CASE("a goodbye ends both ends at once, with its reason", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  close_link(at.a.link, "stopping for lunch");
  // Sooner than silence would be noticed.
  REQUIRE(s->until([&] { return s->b.heard->downs.size() == 1; }, 1s));
  CHECK(s->b.heard->downs.all()[0].reason.find("stopping for lunch") != std::string::npos);
  CHECK(s->until([&] { return s->a.heard->downs.size() == 1; }, 1s));
}

TEST_CASE("an end that dies takes the other along", "[contract]") {
  const auto s = make_scene();
  const auto at = s->link();
  caf::anon_send_exit(at.a.link, caf::exit_reason::kill);
  CHECK(s->until([&] { return s->b.heard->downs.size() == 1; }, noticed_within));
}

TEST_CASE("a refused connector hears why, and no link comes up", "[contract]") {
  const auto s = make_scene("other");
  s->connect();
  REQUIRE(
      s->until([&] { return s->a.heard->refusals.size() > 0 && s->b.heard->refusals.size() > 0; },
               patience));
  const auto refused = s->a.heard->refusals.all()[0];
  CHECK(refused.by_peer);
  CHECK(refused.why.code == "other_cluster");
  CHECK(s->b.heard->refusals.all()[0].why.code == "other_cluster");
  CHECK(s->a.heard->ups.size() == 0);
  CHECK(s->b.heard->ups.size() == 0);
}
