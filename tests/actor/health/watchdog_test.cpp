#include "actors/health/watchdog_actor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

using namespace troupe;
using namespace troupe::health;
using namespace std::chrono_literals;

namespace {

struct scene : test::deterministic_system {
  caf::actor dog = own(spawn_watchdog(system, {"h0", {}}));
  caf::actor launcher = capture();
  engine_account is;

  scene() {
    spdlog::set_level(spdlog::level::off);
    is.stepping = true;
    is.at_hand = 8;
  }
  /// A report as each second brings one; the verdicts that came of it.
  std::vector<engine_judged> report(std::uint64_t generation = 1,
                                    const std::string& engine = "both/p/h0.0") {
    caf::send_as(launcher, dog, engine_progress{engine, generation, is});
    advance(1s);
    return take<engine_judged>(launcher);
  }
  std::vector<engine_judged> reports(int count) {
    std::vector<engine_judged> all;
    for (int i = 0; i < count; ++i)
      for (auto& x : report()) all.push_back(std::move(x));
    return all;
  }
};

}  // namespace

TEST_CASE_METHOD(scene, "an engine that stops ticking is told of once, with the evidence") {
  for (int i = 0; i < 10; ++i) {
    is.ticks += 30;
    CHECK(report().empty());
  }
  const auto told = reports(20);
  REQUIRE(told.size() == 1);
  CHECK(told[0].engine == "both/p/h0.0");
  CHECK(told[0].generation == 1);
  CHECK(told[0].is.what == verdict::hung);
  CHECK_THAT(told[0].is.evidence, Catch::Contains("8 tokens"));
}

TEST_CASE_METHOD(scene, "what a hung engine says late is progress again") {
  for (int i = 0; i < 3; ++i) is.ticks += 30, report();
  CHECK(reports(10).size() == 1);
  is.ticks += 30;
  const auto told = report();
  REQUIRE(told.size() == 1);
  CHECK(told[0].is.what == verdict::healthy);
}

TEST_CASE_METHOD(scene,
                 "the next incarnation begins healthy, and the last one's late words don't count") {
  for (int i = 0; i < 3; ++i) is.ticks += 30, report();
  CHECK(reports(10).size() == 1);
  CHECK(report(2).empty());
  is.ticks += 30;
  CHECK(report(1).empty());
  CHECK(report(2).empty());
}

TEST_CASE_METHOD(scene, "engines are judged apart") {
  for (int i = 0; i < 3; ++i) is.ticks += 30, report(1, "a"), report(1, "b");
  auto still = is;
  std::vector<engine_judged> told;
  for (int i = 0; i < 10; ++i) {
    is = still;
    for (auto& x : report(1, "a")) told.push_back(std::move(x));
    is.ticks += 100 + static_cast<std::uint64_t>(i);
    for (auto& x : report(1, "b")) told.push_back(std::move(x));
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].engine == "a");
}
