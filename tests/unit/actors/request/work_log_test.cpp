#include "actors/request/work_log.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::request;

// How this can fail: a cost is counted twice or not at all, a guess stands although the truth was
// told, a job that will never tell is waited for, the ledgers see work that was not done.

namespace {

const job_key first{{1, 2}, 0, 1}, second{{1, 2}, 0, 2};

engine::job_cost cost(std::uint32_t computed, std::uint32_t sampled) {
  auto c = guessed_cost(computed, 0, sampled, true);
  c.prefill = std::chrono::milliseconds(computed);
  return c;
}

}  // namespace

TEST_CASE("work: what a worker tells takes a guess's place, whichever comes first") {
  work_log log;
  log.opened("a", first);
  log.opened("b", first);
  CHECK(log.owed() == 2);
  log.guess("a", first, cost(10, 1));
  log.told("a", first, cost(100, 5));
  log.guess("a", first, cost(10, 1));
  CHECK(log.owed() == 1);
  CHECK_FALSE(log.complete());
  log.told("b", first, {});
  CHECK(log.owed() == 0);
  CHECK(log.complete());
  REQUIRE(log.jobs().size() == 2);
  CHECK(log.jobs()[0].cost == cost(100, 5));
  log.told("a", first, cost(100, 6));  // totals: the later one holds
  CHECK(log.jobs()[0].cost == cost(100, 6));
}

TEST_CASE("work: nobody waits for a worker that is gone, but what it tells still counts") {
  work_log log;
  log.opened("a", first);
  log.guess("a", first, cost(10, 1));
  log.lost("a");
  CHECK(log.owed() == 0);
  CHECK_FALSE(log.complete());
  log.told("a", first, cost(10, 2));
  CHECK(log.complete());
}

TEST_CASE("work: a stranger's word counts nothing; a job that leaves is one under either name") {
  work_log log;
  log.opened("a", first);
  log.told("b", first, cost(1'000, 1'000));
  log.told("a", {{1, 2}, 1, 1}, cost(1'000, 1'000));
  CHECK(log.owed() == 1);
  SECTION("the request knows") { log.renamed("a", first, second); }
  SECTION("the worker was quicker") {}
  log.told("a", second, cost(100, 5));
  REQUIRE(log.jobs().size() == 1);
  CHECK(log.jobs()[0].attempt == 2);
  CHECK(log.complete());
}

TEST_CASE("work: a request with more jobs than are kept apart still has all of their costs") {
  work_log log;
  const auto all = static_cast<std::uint32_t>(2 * work_log::jobs_max);
  for (std::uint32_t i = 1; i <= all; ++i) {
    log.opened("a", {{1, 2}, 0, i});
    log.told("a", {{1, 2}, 0, i}, cost(1, 1));
  }
  CHECK(log.jobs().size() == work_log::jobs_max);
  CHECK(log.complete());
  engine::job_cost sum;
  for (const auto& j : log.jobs()) sum += j.cost;
  CHECK(sum.computed == all);
  CHECK(sum.sampled == all);
}

TEST_CASE("work: a cost gives back the range of the prompt and the context that it came from") {
  job_account job{"a", 0, 2, guessed_cost(1'000, 200, 50, true), true, false};
  auto w = work_of(job, 1'000, 0);
  CHECK(w.cached_tokens == 200);
  CHECK(w.computed_to == 1'000);
  CHECK(w.repeated_tokens == 0);
  CHECK(w.prompt_tokens == 1'000);
  CHECK(w.output_tokens == 50);
  job.cost = {};
  w = work_of(job, 1'000, 200);
  CHECK(w.computed_to == 0);
  CHECK(w.output_tokens == 0);
}

TEST_CASE("work: what a pre-emption computed again is apart from what was to be computed") {
  // [200, 1000), and after 20 tokens all of it once more.
  job_account job{"a", 0, 1, guessed_cost(1'000, 200, 50, true), true, false};
  job.cost += guessed_cost(1'020, 0, 0, true);
  auto w = work_of(job, 1'000, 200);
  CHECK(w.cached_tokens == 200);
  CHECK(w.computed_to == 1'000);
  CHECK(w.repeated_tokens == 1'020);
  // Of a later attempt it is not known what was cached; no position is paid twice.
  job.attempt = 2;
  w = work_of(job, 1'000, 200);
  CHECK(w.computed_to <= 1'000);
  CHECK(w.computed_to - w.cached_tokens + w.repeated_tokens == 1'820);
}
