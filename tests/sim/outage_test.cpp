// The control host away under load, short: the command runs it for as long as it is meant to be.

#include "apps/sim/outage_run.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>

using namespace troupe;
using namespace troupe::sim;
using namespace std::chrono_literals;

namespace {

outage_options away_for(std::chrono::seconds outage, std::uint64_t seed) {
  spdlog::set_level(spdlog::level::off);
  outage_options o;
  o.seed = seed;
  o.outage = outage;
  return o;
}

void show(const outage_result& r) {
  UNSCOPED_INFO(to_text(r));
  for (const auto& f : r.run.findings) UNSCOPED_INFO(f.checker + " " + f.subject + ": " + f.text);
}

bool found(const outage_result& r, const std::string& checker) {
  return std::any_of(r.run.findings.begin(), r.run.findings.end(),
                     [&](const auto& f) { return f.checker == checker; });
}

}  // namespace

TEST_CASE("while the control host is away and engines are replaced no request fails") {
  const auto r = run_outage(away_for(60s, 1));
  show(r);
  CHECK(r.run.findings.empty());
  CHECK(r.run.failed == 0);
  CHECK(r.run.cut_off == 0);
  CHECK(r.run.finished == r.run.requests);
  CHECK(r.run.requests > 2'000);
  CHECK(r.engines == 40);
  CHECK(r.replaced == 4);
  CHECK(r.drained == 1);
  CHECK(r.killed == 3);
  CHECK(r.hit > 0);  // somebody noticed
  // The keys had been moved before, by more than one assignment, and were not moved in between.
  CHECK(r.before > control::assignment_number{1, 0});
  CHECK(r.before < r.after);
  CHECK(r.before.term < r.after.term);
}

TEST_CASE("a gateway that starts while the control host is away learns from shards who has which "
          "keys") {
  auto o = away_for(40s, 2);
  o.gateway_restarts = true;
  const auto r = run_outage(o);
  show(r);
  CHECK(r.run.findings.empty());
  CHECK(r.run.failed == 0);
  CHECK(r.gateway_began == control::assignment_number{});
  CHECK(r.gateway_learnt == r.before);
  // What the wrong shard was asked first was served, and counted; then it knew.
  CHECK(r.misrouted > 0);
  CHECK(r.misrouted < r.asked / 10);
}

TEST_CASE("an outage that costs requests, or after which nobody goes on, is told") {
  auto o = away_for(30s, 3);
  // Streams of a worker that has ended are never repeated.
  o.planted = planted::bug::forget_gone;
  const auto lost = run_outage(o);
  show(lost);
  CHECK(lost.run.failed > 0);
  CHECK(found(lost, "failures"));
}
