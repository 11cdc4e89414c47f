// The simulation itself: a whole run without faults gives what it should, and twice the same.

#include "apps/sim/chaos_run.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

using namespace troupe::sim;

namespace {

run_options small(std::uint64_t seed, std::size_t faults) {
  spdlog::set_level(spdlog::level::off);
  run_options o;
  o.seed = seed;
  o.requests = 40;
  o.faults = faults;
  return o;
}

}  // namespace

TEST_CASE("without faults every request gets its answer and nothing is left") {
  const auto r = run_chaos(small(3, 0));
  for (const auto& f : r.findings) UNSCOPED_INFO(f.checker + ": " + f.text);
  CHECK(r.findings.empty());
  CHECK(r.requests == 40);
  CHECK(r.finished > 30);
  CHECK(r.cut_off == 0);
}

TEST_CASE("the same seed gives the same history, another seed another one") {
  const auto once = run_chaos(small(5, 6));
  const auto again = run_chaos(small(5, 6));
  CHECK(once.faults >= 5);
  CHECK(once.hash == again.hash);
  CHECK(once.events == again.events);
  CHECK(once.hash != run_chaos(small(6, 6)).hash);
}

TEST_CASE("what operators order costs no request its answer, and streams move") {
  std::size_t moves = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    auto o = small(seed, 6);
    o.requests = 200;  // one must be decoding when the order comes
    o.only = {fault_kind::drain_engine, fault_kind::restart_engine};
    const auto r = run_chaos(o);
    for (const auto& f : r.findings) UNSCOPED_INFO(f.checker + ": " + f.text);
    INFO("seed " << seed);
    CHECK(r.findings.empty());
    moves += r.moves;
  }
  CHECK(moves > 0);
}
