#include "actors/link/link_actor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

using namespace troupe;
using namespace troupe::link;
using namespace std::chrono_literals;

namespace {

/// Loses what goes out of one process while `cut`.
struct cuttable : wire {
  bool cut = false;
  void send(const caf::actor& from, const caf::actor& to, caf::message what) override {
    if (!cut) caf::send_as(from, to, std::move(what));
  }
};

/// One process: its post office, its owner of links, and its side of the wire.
struct side {
  std::shared_ptr<post_office> office = std::make_shared<post_office>();
  std::shared_ptr<cuttable> out = std::make_shared<cuttable>();
  caf::actor owner;
  std::shared_ptr<const link_context> context;
};

struct scene : test::deterministic_system {
  side a = make("a", 1);
  side b = make("b", 2);
  caf::actor connector = capture();

  scene() { spdlog::set_level(spdlog::level::off); }

  side make(const std::string& host, std::uint8_t process, const std::string& cluster = "c") {
    side s;
    s.owner = capture();
    link_context c;
    c.self.cluster_id = cluster;
    c.self.process.fill(process);
    c.self.host = host;
    c.known_hosts = {"a", "b"};
    c.office = s.office;
    c.owner = s.owner;
    c.through = s.out;
    s.context = std::make_shared<const link_context>(std::move(c));
    return s;
  }

  /// Host a connects to host b.
  void connect() {
    auto listener = own(spawn_listener(system, b.context));
    own(spawn_link(system, a.context, listener, connector));
    run();
  }

  link_up up(const side& s) {
    auto all = take<link_up>(s.owner);
    REQUIRE(all.size() == 1);
    return own_link(all[0]);
  }
  link_up own_link(link_up x) {
    own(x.link);
    return x;
  }

  static msg::envelope<msg::Goodbye> text(const std::string& what) {
    msg::draft<msg::Goodbye> d;
    d->setReason(what);
    return std::move(d).freeze().value();
  }
};

}  // namespace

TEST_CASE("both ends come up and know each other") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto at_b = s.up(s.b);
  CHECK(at_a.peer.host == "b");
  CHECK(at_b.peer.host == "a");
  CHECK(at_a.peer.protocol == protocol_version);
  CHECK(at_b.peer.kind == msg::ProcessKind::NODE);
}

TEST_CASE("parcels go both ways, with sender and generation, in order") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto at_b = s.up(s.b);
  auto actor_a = s.capture();
  auto actor_b = s.capture();
  s.a.office->bind("requests/a", 1, actor_a);
  s.b.office->bind("decode/p/b.0", 5, actor_b);
  s.a.office->set_route("decode/p/b.0", 5, at_a.link);
  s.b.office->set_route("requests/a", 1, at_b.link);

  s.a.office->send({"decode/p/b.0", 5}, {"requests/a", 1}, scene::text("1"));
  s.a.office->send({"decode/p/b.0", 5}, {"requests/a", 1}, scene::text("2"));
  s.b.office->send({"requests/a", 0}, {"decode/p/b.0", 5}, scene::text("3"));
  s.run();
  auto got = s.take_envelopes<msg::Goodbye>(actor_b);
  REQUIRE(got.size() == 2);
  CHECK(got[0].first.from == msg::address{"requests/a", 1});
  CHECK(msg::view<msg::Goodbye> { got[0].second } -> getReason() == "1");
  CHECK(msg::view<msg::Goodbye> { got[1].second } -> getReason() == "2");
  CHECK(s.take_envelopes<msg::Goodbye>(actor_a).size() == 1);

  // What is for an older incarnation, or for nobody, is counted and lost.
  s.a.office->send({"decode/p/b.0", 4}, {"requests/a", 1}, scene::text("old"));
  CHECK(s.a.office->counters().stale_generation == 1);
  s.a.office->set_route("nobody", 0, at_a.link);
  s.a.office->send({"nobody", 0}, {"requests/a", 1}, scene::text("?"));
  s.run();
  CHECK(s.b.office->counters().unknown_name == 1);
  CHECK(s.take_envelopes<msg::Goodbye>(actor_b).empty());
}

TEST_CASE("a parcel is never sent back into the link that it came from") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto at_b = s.up(s.b);
  // An engine sends all that it does not know to its node; the node knows this name as the
  // engine's.
  s.a.office->set_route("decode/p/b.0", 5, at_a.link);
  s.b.office->set_default_route(at_b.link);
  s.a.office->send({"decode/p/b.0", 5}, {"requests/a", 1}, scene::text("?"));
  for (int i = 0; i < 100; ++i) (void)s.scheduler.try_run_once();
  CHECK(s.a.office->counters().forwarded == 1);
  CHECK(s.b.office->counters().forwarded == 0);
  CHECK(s.b.office->counters().no_route == 1);
  // What the engine itself says still goes there.
  s.b.office->send({"requests/a", 1}, {"decode/p/b.0", 5}, scene::text("!"));
  CHECK(s.b.office->counters().forwarded == 1);
}

TEST_CASE(
    "a parcel from one peer node is never given to another, so that no ring of nodes has it") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  s.up(s.b);
  auto third = s.capture();  // b's link to host c, which takes host a for the place of this name
  s.a.office->set_route("decode/p/x.0", 5, at_a.link);
  s.b.office->set_route("decode/p/x.0", 5, third);
  s.a.office->send({"decode/p/x.0", 5}, {"requests/a", 1}, scene::text("?"));
  s.run();
  CHECK(s.b.office->counters().no_route == 1);
  CHECK(s.b.office->counters().forwarded == 0);
  CHECK(s.pending(third) == 0);
  // To an engine of its own a node passes on whatever comes.
  s.b.office->set_route("decode/p/x.0", 5, third, far_end::engine);
  s.a.office->send({"decode/p/x.0", 5}, {"requests/a", 1}, scene::text("!"));
  s.run();
  CHECK(s.b.office->counters().forwarded == 1);
  CHECK(s.pending(third) == 1);
}

TEST_CASE("a body of an unknown schema is counted, not delivered") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto actor_b = s.capture();
  s.b.office->bind("x", 0, actor_b);
  s.a.office->set_route("x", 0, at_a.link);
  auto p = msg::make_parcel({"x", 0}, {}, scene::text("hello"));
  p.schema = 0x1234;
  s.a.office->deliver(p);
  s.run();
  CHECK(s.b.office->counters().unknown_schema == 1);
  CHECK(s.pending(actor_b) == 0);
}

TEST_CASE("an idle link stays") {
  scene s;
  s.connect();
  s.advance(120s, 250ms);
  CHECK(s.take<link_down>(s.a.owner).empty());
  CHECK(s.take<link_down>(s.b.owner).empty());
}

TEST_CASE("a cut in one direction only is noticed, whichever it is") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto at_b = s.up(s.b);
  s.a.office->set_route("decode/p/b.0", 5, at_a.link);
  s.advance(10s, 250ms);
  auto& direction = GENERATE(true, false) ? s.a : s.b;
  direction.out->cut = true;
  s.advance(3s, 250ms);
  CHECK(s.take<link_down>(s.a.owner).empty());
  CHECK(s.take<link_down>(s.b.owner).empty());
  s.advance(3s, 250ms);
  auto down_a = s.take<link_down>(s.a.owner);
  auto down_b = s.take<link_down>(s.b.owner);
  REQUIRE(down_a.size() == 1);
  REQUIRE(down_b.size() == 1);
  CHECK(down_a[0].peer.host == "b");
  CHECK(down_a[0].link == at_a.link);
  const auto reasons = down_a[0].reason + down_b[0].reason;
  CHECK(reasons.find("no echo") != std::string::npos);
  CHECK_FALSE(s.a.office->knows("decode/p/b.0"));
}

TEST_CASE("a short cut is survived") {
  scene s;
  s.connect();
  s.advance(5s, 250ms);
  s.a.out->cut = true;
  s.advance(2s, 250ms);
  s.a.out->cut = false;
  s.advance(20s, 250ms);
  CHECK(s.take<link_down>(s.a.owner).empty());
  CHECK(s.take<link_down>(s.b.owner).empty());
}

TEST_CASE("a goodbye ends both ends at once, with its reason") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto at_b = s.up(s.b);
  close_link(at_a.link, "stopping for lunch");
  s.run();
  auto down = s.take<link_down>(s.b.owner);
  REQUIRE(down.size() == 1);
  CHECK(down[0].reason.find("stopping for lunch") != std::string::npos);
  CHECK(s.take<link_down>(s.a.owner).size() == 1);
}

TEST_CASE("an end that dies takes the other along") {
  scene s;
  s.connect();
  auto at_a = s.up(s.a);
  auto at_b = s.up(s.b);
  caf::anon_send_exit(at_a.link, caf::exit_reason::kill);
  s.run();
  CHECK(s.take<link_down>(s.b.owner).size() == 1);
}

TEST_CASE("a refused connector hears why, and no link comes up") {
  scene s;
  s.a = s.make("a", 1, "other");
  s.connect();
  auto refused = s.take<link_refused>(s.connector);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].by_peer);
  CHECK(refused[0].why.code == "other_cluster");
  CHECK(s.take<link_refused>(s.b.owner).size() == 1);
  CHECK(s.take<link_up>(s.a.owner).empty());
  CHECK(s.take<link_up>(s.b.owner).empty());
}

TEST_CASE("a listener that doesn't answer is given up") {
  scene s;
  auto mute = s.capture();
  bool ended = false;
  auto l = s.own(spawn_link(s.system, s.a.context, mute, s.connector));
  l->attach_functor([&](const caf::error&) { ended = true; });
  s.advance(2s);
  CHECK_FALSE(ended);
  s.advance(2s);
  CHECK(ended);
  CHECK(s.take<link_up>(s.a.owner).empty());
}
