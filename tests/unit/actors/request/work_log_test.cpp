#include "actors/request/work_log.hpp"

#include <catch2/catch.hpp>

#include <limits>

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
  log.opened("a", 7, first);
  log.opened("b", 7, first);
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
  log.opened("a", 7, first);
  log.guess("a", first, cost(10, 1));
  log.lost("a", 8);
  CHECK(log.owed() == 0);
  CHECK_FALSE(log.complete());
  log.told("a", first, cost(10, 2));
  CHECK(log.complete());
}

TEST_CASE("work: a stranger's word counts nothing; a job that leaves is one under either name") {
  work_log log;
  log.opened("a", 7, first);
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

TEST_CASE("work: a worker that has started again may still tell") {
  work_log log;
  log.opened("a", 7, first);
  log.opened("a", 8, second);
  log.lost("a", 8);  // of the first process there is nothing left
  CHECK(log.owed() == 1);
  log.lost("a", 0);
  CHECK(log.owed() == 0);
}

TEST_CASE("work: a prompt with more jobs than are kept apart still has all of their costs") {
  work_log log;
  const auto all = static_cast<std::uint32_t>(2 * work_log::jobs_per_prompt_max);
  for (std::uint32_t i = 1; i <= all; ++i) {
    log.opened("a", 7, {{1, 2}, 0, i});
    log.told("a", {{1, 2}, 0, i}, cost(1, 1));
  }
  CHECK(log.jobs().size() == work_log::jobs_per_prompt_max);
  CHECK(log.complete());
  engine::job_cost sum;
  for (const auto& j : log.jobs()) sum += j.cost;
  CHECK(sum.computed == all);
  CHECK(sum.sampled == all);
}

TEST_CASE("work: many prompts run at once, and each of their jobs may tell afterwards") {
  work_log log;
  const auto all = static_cast<std::uint16_t>(work_log::jobs_per_prompt_max + 1);
  for (std::uint16_t i = 0; i < all; ++i) log.opened("a", 7, {{1, 2}, i, 1});
  CHECK(log.owed() == all);
  for (std::uint16_t i = 0; i < all; ++i) log.told("a", {{1, 2}, i, 1}, cost(10, 1));
  CHECK(log.complete());
  REQUIRE(log.jobs().size() == all);
  for (const auto& j : log.jobs()) CHECK(j.cost == cost(10, 1));
}

TEST_CASE("work: what may still be told is summed up last") {
  work_log log;
  const auto all = static_cast<std::uint32_t>(work_log::jobs_per_prompt_max + 1);
  log.opened("a", 7, first);
  for (std::uint32_t i = 2; i <= all; ++i) {
    log.opened("b", 7, {{1, 2}, 0, i});
    log.told("b", {{1, 2}, 0, i}, cost(1, 1));
  }
  CHECK(log.jobs().size() == work_log::jobs_per_prompt_max);
  CHECK(log.owed() == 1);
  log.told("a", first, cost(100, 5));
  CHECK(log.jobs().front().cost == cost(100, 5));
}

TEST_CASE("work: a cost gives back the range of the prompt and the context that it came from") {
  job_account job{"a", 7, 0, 2, guessed_cost(1'000, 200, 50, true), true, false};
  auto w = work_of(job, 1'000, 0);
  CHECK(w.cached_tokens == 200);
  CHECK(w.computed_to == 1'000);
  CHECK(w.computed_tokens == 800);
  CHECK(w.computed_context == Approx(job.cost.computed_context));
  CHECK(w.output_tokens == 50);
  CHECK(w.sampled_context == Approx(50 * 1'025));
  job.cost = {};
  w = work_of(job, 1'000, 200);
  CHECK(w.computed_to == 0);
  CHECK(w.output_tokens == 0);
}

TEST_CASE("work: what a pre-emption computed again is apart from what was to be computed") {
  // [200, 1000), and after 20 tokens all of it once more.
  job_account job{"a", 7, 0, 1, guessed_cost(1'000, 200, 50, true), true, false};
  SECTION("all of it") { job.cost += guessed_cost(1'020, 0, 0, true); }
  SECTION("what the cache had lost") { job.cost += guessed_cost(1'020, 800, 0, true); }
  const auto w = work_of(job, 1'000, 200);
  CHECK(w.cached_tokens == 200);
  CHECK(w.computed_to == 1'000);
  CHECK(w.computed_tokens == job.cost.computed);
  CHECK(w.computed_context == job.cost.computed_context);
}

TEST_CASE("work: what cannot be, from another process, does no harm") {
  job_account job{"a", 7, 0, 2, {}, true, false};
  job.cost.computed = 10;
  job.cost.sampled = 10;
  for (const double context : {1e300, 4.29e10, -5.0, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN(), 1e-300}) {
    job.cost.computed_context = job.cost.sampled_context = context;
    const auto w = work_of(job, 100, 0);
    CHECK(w.computed_to >= w.cached_tokens);
    CHECK(w.computed_context <= 10 * 4294967295.0);
    CHECK(w.sampled_context <= 10 * 4294967295.0);
    CHECK(w.sampled_context >= 0);
  }
}
