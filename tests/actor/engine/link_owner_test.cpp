#include "apps/engine/link_owner.hpp"

#include "actors/link/link_actor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// The records come first, since the owner still writes to them while the system ends.
struct records {
  int ups = 0;
  std::vector<std::string> gone;
};

struct scene : records, test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  caf::actor link = capture();
  caf::actor connector = capture();
  caf::actor owner;

  scene() {
    spdlog::set_level(spdlog::level::off);
    owner = own(apps::spawn_link_owner(
        system,
        {office, [this] { ++ups; }, [this](std::string why) { gone.push_back(std::move(why)); }}));
    tell(connector);
  }
  template <class T>
  void tell(T what) {
    caf::anon_send(owner, std::move(what));
    run();
  }
  void up() { tell(link::link_up{{}, link}); }
  void down() { tell(link::link_down{{}, link, "test"}); }
};

}  // namespace

TEST_CASE("the node is gone when there is no link for long, not after short losses") {
  scene s;
  s.advance(9s);
  s.up();
  CHECK(s.ups == 1);
  s.advance(60s);
  s.down();
  s.advance(2s);
  s.up();
  s.advance(7s);
  s.down();
  s.advance(9s);
  CHECK(s.gone.empty());
  s.advance(2s);
  CHECK(s.gone.size() == 1);
}

TEST_CASE("what the process does not know goes into the link") {
  scene s;
  s.up();
  msg::draft<msg::Goodbye> d;
  s.office->send({"router/0", 0}, {}, std::move(d).freeze().value());
  s.run();
  CHECK(s.take<msg::parcel>(s.link).size() == 1);
}

TEST_CASE("a connector that ends is said: nobody would connect again") {
  scene s;
  s.up();
  caf::anon_send_exit(s.connector, caf::exit_reason::kill);
  s.run();
  REQUIRE(s.gone.size() == 1);
  CHECK_THAT(s.gone[0], Catch::Contains("connector"));
}

TEST_CASE("a refusal is said once, though the connector ends with it") {
  scene s;
  s.tell(link::link_refused{"own node", {"bad_secret", "no child of mine"}, true});
  caf::anon_send_exit(s.connector, caf::exit_reason::kill);
  s.run();
  REQUIRE(s.gone.size() == 1);
  CHECK_THAT(s.gone[0], Catch::Contains("no child of mine"));
}
