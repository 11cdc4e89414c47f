#include "actors/directory/directory_actor.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

using namespace troupe;
using namespace troupe::directory;

namespace {

/// Host a's directory; hosts b and c are played by captures that stand for links.
struct scene : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory_view> view = std::make_shared<directory_view>();
  caf::actor directory;
  caf::actor subscriber = capture();

  scene() {
    spdlog::set_level(spdlog::level::off);
    directory = own(spawn_directory(system, "a", {1}, office, view));
    caf::anon_send(directory, subscribe{subscriber});
    run();
    (void)take<directory_changed>(subscriber);
  }

  static link::peer_info node(const std::string& host) {
    link::peer_info p;
    p.kind = msg::ProcessKind::NODE;
    p.host = host;
    return p;
  }
  static link::peer_info engine(const std::string& name, std::uint64_t generation) {
    link::peer_info p;
    p.kind = msg::ProcessKind::ENGINE;
    p.host = "a";
    p.engine = name;
    p.generation = generation;
    return p;
  }

  void up(const link::peer_info& peer, const caf::actor& l) { tell(link::link_up{peer, l}); }
  void down(const link::peer_info& peer, const caf::actor& l) {
    office->drop_link(l);  // as the link does
    tell(link::link_down{peer, l, "test"});
  }
  template <class T>
  void tell(T x) {
    caf::anon_send(directory, std::move(x));
    run();
  }

  /// What host b says of itself, as its link would deliver it.
  void hear(const directory_state& peer) {
    office->send({directory_name("a"), 0}, {directory_name(peer.own_host()), 0}, peer.own_update());
    run();
  }

  void set(const std::string& name, std::uint64_t generation,
           msg::EntryState state = msg::EntryState::READY) {
    entry e;
    e.name = name;
    e.generation = generation;
    e.state = state;
    tell(set_entry{e});
  }

  /// Names of the set that the last update to this link carried.
  std::vector<std::string> sent_to(const caf::actor& l) {
    auto parcels = take<msg::parcel>(l);
    if (parcels.empty()) return {"nothing"};
    msg::view<msg::DirectoryUpdate> v{msg::envelope<msg::DirectoryUpdate>{parcels.back().body}};
    std::vector<std::string> names;
    for (auto e : v->getEntries()) names.push_back(e.getName());
    return names;
  }

  /// Where a message for this name would go.
  bool goes_to(const std::string& name, const caf::actor& l) {
    (void)take<msg::parcel>(l);
    msg::draft<msg::Goodbye> d;
    office->send({name, 0}, {}, std::move(d).freeze().value());
    run();
    return take<msg::parcel>(l).size() == 1;
  }
};

entry worker(const std::string& name, std::uint64_t generation) {
  entry e;
  e.name = name;
  e.generation = generation;
  e.state = msg::EntryState::READY;
  return e;
}

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("a peer gets our whole set when it comes up, and again at each change") {
  scene s;
  auto b = s.capture();
  s.set("requests/a", 1);
  s.up(scene::node("b"), b);
  CHECK(s.sent_to(b) == names{"requests/a"});
  s.set("router/0", 1);
  CHECK(s.sent_to(b) == names{"requests/a", "router/0"});
  s.set("router/0", 1);
  CHECK(s.sent_to(b) == names{"nothing"});
}

TEST_CASE("a peer's actors get routes, subscribers hear of them, and the view has them") {
  scene s;
  auto b = s.capture();
  s.up(scene::node("b"), b);
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("decode/p/b.0", 5));
  s.hear(peer);
  CHECK(s.goes_to("decode/p/b.0", b));
  CHECK(s.view->get()->at("decode/p/b.0").generation == 5);
  auto heard = s.take<directory_changed>(s.subscriber);
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].what.added_or_changed.at(0).name == "decode/p/b.0");
  CHECK(heard[0].all->contains("decode/p/b.0"));

  (void)peer.remove_own("decode/p/b.0", 5);
  s.hear(peer);
  CHECK_FALSE(s.goes_to("decode/p/b.0", b));
}

TEST_CASE("an own entry that is removed is gone here and at the peers, unless it is a newer one") {
  scene s;
  auto b = s.capture();
  s.up(scene::node("b"), b);
  s.set("gateway/a", 2);
  (void)s.sent_to(b);
  s.tell(remove_entry{"gateway/a", 1});
  CHECK(s.sent_to(b) == names{"nothing"});
  CHECK(s.view->get()->contains("gateway/a"));
  s.tell(remove_entry{"gateway/a", 2});
  CHECK(s.sent_to(b).empty());
  CHECK_FALSE(s.view->get()->contains("gateway/a"));
}

TEST_CASE("a late subscriber begins with everything") {
  scene s;
  s.set("router/0", 1);
  auto late = s.capture();
  s.tell(subscribe{late});
  auto heard = s.take<directory_changed>(late);
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].what.added_or_changed.at(0).name == "router/0");
}

TEST_CASE("a lost host: routes gone, subscribers told which, and all back with the next link") {
  scene s;
  auto b = s.capture();
  s.up(scene::node("b"), b);
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("decode/p/b.0", 5));
  s.hear(peer);
  (void)s.take<directory_changed>(s.subscriber);
  s.down(scene::node("b"), b);
  auto heard = s.take<directory_changed>(s.subscriber);
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].lost_host == "b");
  CHECK(heard[0].what.removed.at(0).name == "decode/p/b.0");
  CHECK(s.view->get()->empty());

  auto again = s.capture();
  s.up(scene::node("b"), again);
  s.hear(peer);  // same process, same version
  CHECK(s.goes_to("decode/p/b.0", again));
}

TEST_CASE("a newer link takes over; the end of the older one changes nothing") {
  scene s;
  auto first = s.capture();
  auto second = s.capture();
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("decode/p/b.0", 5));
  s.up(scene::node("b"), first);
  s.hear(peer);
  s.up(scene::node("b"), second);
  s.hear(peer);
  (void)s.take<directory_changed>(s.subscriber);
  s.down(scene::node("b"), first);
  CHECK(s.take<directory_changed>(s.subscriber).empty());
  CHECK(s.goes_to("decode/p/b.0", second));
}

TEST_CASE("a set of a host that has no link is not believed") {
  scene s;
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("decode/p/b.0", 5));
  s.hear(peer);
  CHECK(s.view->get()->empty());
}

TEST_CASE("an update that cannot be read is dropped, and the directory goes on") {
  scene s;
  auto b = s.capture();
  s.up(scene::node("b"), b);
  s.office->send({directory_name("a"), 0}, {directory_name("b"), 0},
                 test::unreadable<msg::DirectoryUpdate>());
  s.run();
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("decode/p/b.0", 5));
  s.hear(peer);
  CHECK(s.goes_to("decode/p/b.0", b));
}

TEST_CASE("our own engines are reached by their link, and their launcher hears of it") {
  scene s;
  auto launcher = s.capture();
  auto l = s.capture();
  s.tell(watch_engine{"decode/p/a.0", launcher});
  s.up(scene::engine("decode/p/a.0", 7), l);
  CHECK(s.goes_to("decode/p/a.0", l));
  CHECK(s.take<link::link_up>(launcher).size() == 1);
  s.down(scene::engine("decode/p/a.0", 7), l);
  CHECK(s.take<link::link_down>(launcher).size() == 1);
  CHECK_FALSE(s.goes_to("decode/p/a.0", l));
}

TEST_CASE("the end of an engine's older link is no news once a newer one is up") {
  scene s;
  auto launcher = s.capture();
  auto old = s.capture(), young = s.capture();
  s.tell(watch_engine{"decode/p/a.0", launcher});
  s.up(scene::engine("decode/p/a.0", 7), old);
  s.up(scene::engine("decode/p/a.0", 7), young);
  s.down(scene::engine("decode/p/a.0", 7), old);
  CHECK(s.take<link::link_down>(launcher).empty());
  CHECK(s.goes_to("decode/p/a.0", young));
  s.down(scene::engine("decode/p/a.0", 7), young);
  CHECK(s.take<link::link_down>(launcher).size() == 1);
}

TEST_CASE("of two living processes that claim one host's name, the one that came last is kept") {
  scene s;
  auto process = [](std::uint8_t id) {
    auto p = scene::node("b");
    p.process[0] = id;
    return p;
  };
  auto first = s.capture(), second = s.capture(), again = s.capture();
  s.up(process(1), first);
  s.up(process(2), second);  // as after a restart
  CHECK(s.goes_to("directory/b", second));
  s.down(process(1), first);
  s.up(process(1), again);  // it is alive
  CHECK(s.goes_to("directory/b", second));
  CHECK(s.pending(again) > 0);  // it was told to close
  s.down(process(1), again);
  CHECK(s.goes_to("directory/b", second));
  s.down(process(2), second);
  s.up(process(1), again);  // nobody else claims it any more
  CHECK(s.goes_to("directory/b", again));
}

TEST_CASE("a peer cannot take a local name away") {
  scene s;
  auto b = s.capture();
  auto local = s.capture();
  s.office->bind("requests/a", 1, local);
  s.up(scene::node("b"), b);
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("requests/a", 99));
  s.hear(peer);
  CHECK_FALSE(s.goes_to("requests/a", b));
  CHECK(s.take_envelopes<msg::Goodbye>(local).size() == 1);
}

TEST_CASE("a subscriber that ended is forgotten") {
  scene s;
  auto gone = s.system.spawn(
      [](caf::event_based_actor* self, caf::unit_t) -> caf::behavior {
        self->set_default_handler(caf::drop);
        return {[](caf::unit_t) {}};
      },
      caf::unit);
  s.tell(subscribe{gone});
  caf::anon_send_exit(gone, caf::exit_reason::kill);
  s.run();
  s.set("router/0", 1);
  CHECK(s.take<directory_changed>(s.subscriber).size() == 1);
}

TEST_CASE("a link that fails without a word is down, too") {
  scene s;
  auto b = s.capture();
  s.up(scene::node("b"), b);
  directory_state peer{"b", {2}};
  (void)peer.set_own(worker("decode/p/b.0", 5));
  s.hear(peer);
  (void)s.take<directory_changed>(s.subscriber);
  caf::anon_send_exit(b, caf::exit_reason::kill);
  s.run();
  auto heard = s.take<directory_changed>(s.subscriber);
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].lost_host == "b");
  CHECK_FALSE(s.office->knows("decode/p/b.0"));
}
