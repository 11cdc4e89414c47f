#include "actors/request/burst.hpp"

#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <set>
#include <string>
#include <vector>

using namespace troupe;
using request::burst;

namespace {

using begin_atom = caf::atom_constant<caf::atom("begin")>;
using lines = std::vector<std::string>;

struct crowd : test::deterministic_system {
  /// Says `who` and what it got; at `quit` it goes.
  caf::actor listener(std::string who) {
    auto a = system.spawn(
        [](caf::event_based_actor* self, const std::string& name, lines* to) -> caf::behavior {
          return {[=](const std::string& what) {
            to->push_back(name + " " + what);
            if (what == "quit") self->quit();
          }};
        },
        std::move(who), &said);
    run();
    return own(a);
  }
  /// Does `what` in a turn of an actor's own.
  void in_a_turn(const std::function<void(caf::event_based_actor*)>& what) {
    const auto a = own(system.spawn(
        [](caf::event_based_actor* self, const std::function<void(caf::event_based_actor*)>& does)
            -> caf::behavior { return {[=](begin_atom) { does(self); }}; },
        what));
    caf::anon_send(a, begin_atom::value);
    run();
  }

  lines said;
};

}  // namespace

TEST_CASE_METHOD(crowd, "idle actors run within the burst, once all have their message") {
  const auto a = listener("a"), b = listener("b");
  lines within;
  in_a_turn([&](caf::event_based_actor* self) {
    burst all{self, 64};
    all.send(a, std::string{"1"});
    all.send(b, std::string{"1"});
    all.send(a, std::string{"2"});
    CHECK(said.empty());
    all.run();
    within = said;
  });
  CHECK(within == lines{"a 1", "a 2", "b 1"});
  CHECK(said == within);
}

TEST_CASE_METHOD(crowd, "one that has more waiting goes on at the scheduler, and none is lost") {
  const auto a = listener("a"), b = listener("b");
  std::size_t within = 0;
  in_a_turn([&](caf::event_based_actor* self) {
    burst all{self, 64};
    for (int i = 0; i < 20; ++i) all.send(a, std::to_string(i));
    all.send(b, std::string{"x"});
    all.run();
    within = said.size();
  });
  CHECK(within > 1);
  CHECK(within < 21);  // nobody holds the burst up
  lines of_a;
  for (const auto& x : said)
    if (x[0] == 'a') of_a.push_back(x);
  REQUIRE(of_a.size() == 20);
  for (int i = 0; i < 20; ++i) CHECK(of_a[static_cast<std::size_t>(i)] == "a " + std::to_string(i));
}

TEST_CASE_METHOD(crowd, "of a crowd, the scheduler gets its part at once") {
  std::vector<caf::actor> many;
  for (int i = 0; i < 200; ++i) many.push_back(listener(std::to_string(i)));
  std::size_t within = 0;
  in_a_turn([&](caf::event_based_actor* self) {
    burst all{self, 64};
    for (const auto& a : many) all.send(a, std::string{"x"});
    all.run();
    within = said.size();
  });
  CHECK(within > 1);
  CHECK(within < 200);
  CHECK(std::set<std::string>(said.begin(), said.end()).size() == 200);
  CHECK(said.size() == 200);
}

TEST_CASE_METHOD(crowd, "a burst that ends before it ran leaves all to the scheduler") {
  const auto a = listener("a");
  bool none_within = false;
  in_a_turn([&](caf::event_based_actor* self) {
    {
      burst all{self, 64};
      all.send(a, std::string{"1"});
    }
    none_within = said.empty();
  });
  CHECK(none_within);
  CHECK(said == lines{"a 1"});
}

TEST_CASE_METHOD(crowd, "who ends in the burst, or has ended before, is left alone") {
  const auto a = listener("a"), b = listener("b");
  in_a_turn([&](caf::event_based_actor* self) {
    for (int i = 0; i < 2; ++i) {
      burst all{self, 64};
      all.send(a, std::string{"quit"});
      all.send(b, std::to_string(i));
      all.run();
    }
  });
  CHECK(said == lines{"a quit", "b 0", "b 1"});
}

TEST_CASE_METHOD(crowd, "what runs in the burst still hears the scheduler's messages afterwards") {
  const auto a = listener("a");
  in_a_turn([&](caf::event_based_actor* self) {
    burst all{self, 64};
    all.send(a, std::string{"1"});
    all.run();
    self->send(a, std::string{"2"});
  });
  caf::anon_send(a, std::string{"3"});
  run();
  CHECK(said == lines{"a 1", "a 2", "a 3"});
}
