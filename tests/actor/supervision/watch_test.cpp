#include "actors/supervision/watch.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

using namespace troupe;

namespace {

using throw_atom = caf::atom_constant<caf::atom("throw")>;

/// The record comes first, since the watch still writes to it while the system ends.
struct records {
  std::vector<std::string> said;
};

struct scene : records, test::deterministic_system {
  caf::actor spawn_part() {
    return system.spawn(
        [](caf::event_based_actor* self, caf::unit_t) -> caf::behavior {
          self->set_default_handler(caf::drop);
          return {[](throw_atom) { throw std::runtime_error("out of memory"); }};
        },
        caf::unit);
  }
  caf::actor watch(std::vector<supervision::watched_actor> actors) {
    auto w = own(supervision::spawn_watch(system, std::move(actors),
                                          [this](const std::string& why) { said.push_back(why); }));
    run();
    return w;
  }
};

}  // namespace

TEST_CASE("an actor that ends is said by name, whatever ended it, and the watch goes on") {
  scene s;
  auto worker = s.own(s.spawn_part());
  auto owner = s.own(s.spawn_part());
  s.watch({{"worker", worker}, {"owner", owner}});
  CHECK(s.said.empty());
  caf::anon_send(worker, throw_atom::value);
  s.run();
  REQUIRE(s.said.size() == 1);
  CHECK_THAT(s.said[0], Catch::StartsWith("worker has ended: "));
  caf::anon_send_exit(owner, caf::exit_reason::kill);
  s.run();
  REQUIRE(s.said.size() == 2);
  CHECK_THAT(s.said[1], Catch::StartsWith("owner has ended: "));
}

TEST_CASE(
    "an actor that ended before it was watched is said, too; a watch that was ended is quiet") {
  scene s;
  auto early = s.spawn_part();
  auto late = s.own(s.spawn_part());
  caf::anon_send_exit(early, caf::exit_reason::kill);
  s.run();
  auto watch = s.watch({{"early", early}, {"late", late}});
  CHECK(s.said.size() == 1);
  caf::anon_send_exit(watch, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(late, caf::exit_reason::kill);
  s.run();
  CHECK(s.said.size() == 1);
}
