// Sums over many runs: what is printed, and the state from which a long batch goes on.

#include "apps/sim/report.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::sim;

namespace {

run_result some_run(std::uint64_t seed, bool bad) {
  run_result r;
  r.seed = seed;
  r.hash = seed * 77;
  r.events = 10;
  r.requests = 5;
  r.finished = 4;
  r.failed = 1;
  r.faults = 2;
  r.moves = 3;
  r.failures["worker_lost"] = 1;
  r.attempts["lease_lapsed"] = 2;
  r.hits[1][2] = 3;
  if (bad) r.findings.push_back({"answers", "r1", "differ"});
  return r;
}

batch some_batch() {
  batch b;
  b.options.seed = 7;
  b.seconds = 0.5;
  b.add(some_run(7, false));
  b.add(some_run(8, true));
  return b;
}

}  // namespace

TEST_CASE("a batch adds its runs up") {
  const auto b = some_batch();
  CHECK(b.runs == 2);
  CHECK(b.next_seed == 9);
  CHECK(b.requests == 10);
  CHECK(b.moves == 6);
  CHECK(b.failures.at("worker_lost") == 2);
  CHECK(b.hits[1][2] == 6);
  REQUIRE(b.bad.size() == 1);
  CHECK(b.bad[0].seed == 8);
}

TEST_CASE("the order of runs is part of the hash") {
  batch x, y;
  x.add(some_run(1, false));
  x.add(some_run(2, false));
  y.add(some_run(2, false));
  y.add(some_run(1, false));
  CHECK(x.hash != y.hash);
}

TEST_CASE("a saved batch goes on where it was") {
  const auto b = some_batch();
  auto again = load(save(b), b.options);
  REQUIRE(again);
  CHECK(again->next_seed == b.next_seed);
  CHECK(again->hash == b.hash);
  CHECK(again->hits == b.hits);
  CHECK(again->moves == b.moves);
  CHECK(again->failures == b.failures);
  CHECK(again->attempts == b.attempts);
  CHECK(again->bad.size() == 1);
  CHECK(save(*again).substr(0, 60) == save(b).substr(0, 60));
}

TEST_CASE("a state of other runs, or none at all, is refused") {
  const auto b = some_batch();
  auto other = b.options;
  other.requests = 1;
  CHECK(load(save(b), other).error().code == "bad_state");
  other = b.options;
  other.only = {fault_kind::garbage};
  CHECK(load(save(b), other).error().code == "bad_state");
  CHECK(load("", b.options).error().code == "bad_state");
  CHECK(load(save(b).substr(0, 100), b.options).error().code == "bad_state");
}

TEST_CASE("pairs of fault and phase that were never hit are named, but not those that cannot be") {
  batch b;
  const auto possible = b.never_hit().size();
  CHECK(possible > 100);
  CHECK(possible < fault_kinds * phases);
  auto r = some_run(1, false);
  r.hits = {};
  r.hits[0][static_cast<std::size_t>(phase::decoding)] = 1;
  b.add(r);
  CHECK(b.never_hit().size() == possible - 1);
  CHECK(to_text(b).find("never hit: kill_engine while queued") != std::string::npos);
  CHECK(to_text(b).find("never hit: kill_engine while decoding") == std::string::npos);
  CHECK(to_text(b).find("never hit: kill_engine while routing") == std::string::npos);
  CHECK(to_json(b).find("\"kill_engine queued\"") != std::string::npos);
}

TEST_CASE("a batch knows its run with the fewest faults") {
  batch b;
  auto r = some_run(1, false);
  r.faults = 9;
  b.add(r);
  r.faults = 6;
  b.add(r);
  CHECK(b.faults_min == 6);
  CHECK(load(save(b), b.options)->faults_min == 6);
}

TEST_CASE("kinds of faults are read by their names, and written so that a run can be replayed") {
  const auto some = parse_faults("garbage,drain_engine");
  REQUIRE(some);
  CHECK(*some == std::vector{fault_kind::garbage, fault_kind::drain_engine});
  CHECK(join(*some) == "garbage,drain_engine");
  for (const auto* wrong : {"garbage,", "Garbage", ",", "kill_engine kill_node"}) {
    const auto none = parse_faults(wrong);
    REQUIRE_FALSE(none);
    CHECK(none.error().code == "unknown_fault");
    CHECK(none.error().message.find("restart_engine") != std::string::npos);
  }
  run_options o;
  o.only = *some;
  CHECK(replay_command(o).find(" --only garbage,drain_engine ") != std::string::npos);
  for (const auto& f : plan_faults(seeded{1, 1}, 50, std::chrono::seconds{1}, *some))
    CHECK((f.what == fault_kind::garbage || f.what == fault_kind::drain_engine));
}

TEST_CASE("a bad run is told with its replay command") {
  const auto b = some_batch();
  const auto json = to_json(b);
  CHECK(json.find("troupe sim chaos --seed 8 ") != std::string::npos);
  CHECK(json.find("\"kill_loading\"") != std::string::npos);
  CHECK(to_text(b).find("1 bad") != std::string::npos);
  auto r = some_run(8, true);
  r.lines.push_back({time_point{} + std::chrono::hours{1}, "r1", "asks a"});
  r.lines.push_back({time_point{} + std::chrono::hours{1}, "r2", "asks b"});
  const auto told = story(r, 10);
  CHECK(told.find("asks a") != std::string::npos);
  CHECK(told.find("asks b") == std::string::npos);
}
