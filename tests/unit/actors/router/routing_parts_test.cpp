#include "actors/router/cache_correction.hpp"
#include "actors/router/guess_book.hpp"
#include "actors/router/link_speeds.hpp"
#include "actors/router/prefix_rates.hpp"
#include "actors/router/speed_meter.hpp"
#include "actors/router/work_meter.hpp"
#include "actors/router/worker_subsets.hpp"

#include <catch2/catch.hpp>

#include <numeric>
#include <set>
#include <vector>

using namespace troupe;
using namespace troupe::router;
using namespace std::chrono_literals;

namespace {

const guess_book::time_point t0{1'000s};

std::vector<std::uint64_t> chain_of(std::uint64_t first, std::size_t n) {
  std::vector<std::uint64_t> c(n);
  std::iota(c.begin(), c.end(), first);
  return c;
}

std::set<std::uint32_t> as_set(std::span<const std::uint32_t> s) { return {s.begin(), s.end()}; }

std::size_t common(const std::set<std::uint32_t>& a, const std::set<std::uint32_t>& b) {
  std::size_t n = 0;
  for (auto x : a) n += b.count(x);
  return n;
}

worker_subsets large_pool(std::uint32_t workers = 10'000) {
  worker_subsets s;
  std::vector<std::uint32_t> all(workers);
  std::iota(all.begin(), all.end(), 0U);
  s.set_pool(std::move(all));
  return s;
}

}  // namespace

TEST_CASE("speeds are those of stretches with one kind of work, of busy time") {
  speed_meter m;
  CHECK(m.prefill_tokens_per_second() == 0);
  CHECK(m.add(1'000, 0, 500'000, 2));
  CHECK(m.prefill_tokens_per_second() == Approx(2'000));
  CHECK(m.decode_tokens_per_second() == 0);
  CHECK_FALSE(m.add(1'000, 0, 500'000, 2));  // nothing was done since
  CHECK(m.add(1'000, 40, 1'500'000, 42));
  CHECK(m.decode_tokens_per_second() == Approx(40));
  CHECK(m.prefill_tokens_per_second() == Approx(2'000));
}

TEST_CASE("a stretch with both kinds of work tells nothing before passes are known") {
  speed_meter m;
  CHECK_FALSE(m.add(1'000, 40, 2'000'000, 40));
  CHECK(m.prefill_tokens_per_second() == 0);
  REQUIRE(m.add(2'000, 40, 2'500'000, 42));
  REQUIRE(m.add(2'000, 80, 3'500'000, 82));
  // Prompts take twice as long from now on: a second of two.
  for (std::uint64_t i = 1; i < 50; ++i)
    REQUIRE(m.add(2'000 + 1'000 * i, 80 + 40 * i, 3'500'000 + 2'000'000 * i, 82 + 40 * i));
  CHECK(m.prefill_tokens_per_second() == Approx(1'000).epsilon(0.01));
  CHECK(m.decode_tokens_per_second() == Approx(40).epsilon(0.01));
}

TEST_CASE("many streams in a pass make sampled tokens cheaper, and prompts not") {
  speed_meter m;
  REQUIRE(m.add(1'000, 0, 500'000, 2));
  REQUIRE(m.add(1'000, 40, 1'500'000, 42));
  // Half a second for the prompt, and a second for ten times as many tokens in as many passes.
  for (std::uint64_t i = 1; i < 50; ++i)
    REQUIRE(m.add(1'000 + 1'000 * i, 40 + 400 * i, 1'500'000 + 1'500'000 * i, 42 + 40 * i));
  CHECK(m.prefill_tokens_per_second() == Approx(2'000));
  CHECK(m.decode_tokens_per_second() == Approx(400).epsilon(0.01));
}

TEST_CASE("short stretches add up, and an engine that began anew is measured anew") {
  speed_meter m;
  for (std::uint64_t i = 1; i < 10; ++i)
    CHECK_FALSE(m.add(10 * i, 0, speed_meter::stretch_us_min / 10 * i, i));
  CHECK(m.add(100, 0, speed_meter::stretch_us_min, 10));
  CHECK(m.prefill_tokens_per_second() == Approx(5'000));
  CHECK(m.add(20, 0, 40'000, 1));
  CHECK(m.prefill_tokens_per_second() == Approx(500));
}

TEST_CASE("a correction follows what is found, and never claims more than the chain does") {
  cache_correction c;
  CHECK(c.apply(1'000) == 1'000);
  c.add(cache_correction::predicted_tokens_min - 1, 0);
  CHECK(c.ratio() == 1);
  for (int i = 0; i < 100; ++i) c.add(1'000, 250);
  CHECK(c.apply(1'000) == Approx(250).margin(2));
  for (int i = 0; i < 200; ++i) c.add(1'000, 5'000);
  CHECK(c.ratio() == Approx(1).margin(0.001));
  CHECK(c.apply(1'000) <= 1'000);
}

TEST_CASE("a guess counts in full at first, less and less, and not at all when its life is over") {
  guess_book g;
  const auto chain = chain_of(100, 10);
  g.note(3, chain, 0, t0);
  CHECK(g.beyond(3, chain, 0, t0) == Approx(10));
  CHECK(g.beyond(3, chain, 4, t0) == Approx(6));
  CHECK(g.beyond(3, chain, 0, t0 + guess_book::life / 4) == Approx(7.5));
  CHECK(g.beyond(3, chain, 0, t0 + guess_book::life) == 0);
  // Noted again: young again.
  g.note(3, chain, 0, t0 + guess_book::life);
  CHECK(g.beyond(3, chain, 0, t0 + guess_book::life) == Approx(10));
}

TEST_CASE("a guess is of one holder, and ends where the prompts part") {
  guess_book g;
  auto chain = chain_of(100, 10);
  g.note(3, chain, 0, t0);
  CHECK(g.beyond(4, chain, 0, t0) == 0);
  chain[6] = 7;
  CHECK(g.beyond(3, chain, 0, t0) == Approx(6));
  CHECK(g.beyond(3, {}, 0, t0) == 0);
}

TEST_CASE("a full book forgets the oldest guesses, and long prompts are guessed up to a limit") {
  guess_book g{1'024};
  const auto old = chain_of(1, 200), young = chain_of(10'000, 200);
  g.note(1, old, 0, t0);
  for (std::uint64_t i = 0; i < 50; ++i) g.note(2, chain_of(20'000 + 200 * i, 200), 0, t0 + 1s);
  g.note(1, young, 0, t0 + 2s);
  CHECK(g.beyond(1, old, 0, t0 + 2s) < 20);
  CHECK(g.beyond(1, young, 0, t0 + 2s) > 100);
  guess_book large;
  const auto lengthy = chain_of(1, 2 * guess_book::blocks_of_prompt_max);
  large.note(1, lengthy, 0, t0);
  CHECK(large.beyond(1, lengthy, 0, t0) == Approx(guess_book::blocks_of_prompt_max).margin(40));
}

TEST_CASE("bandwidth is what was measured between two hosts, else at their distance") {
  link_speeds s;
  const auto rack = topology::distance::same_rack;
  const auto assumed = s.bytes_per_second(1, 2, rack);
  CHECK(assumed > s.bytes_per_second(1, 2, topology::distance::remote));
  s.add(1, 2, rack, link_speeds::sample_bytes_min - 1, 1);
  s.add(1, 2, rack, 1'000'000, 0);
  CHECK(s.bytes_per_second(1, 2, rack) == assumed);
  for (int i = 0; i < 50; ++i) s.add(1, 2, rack, 1'000'000, 10'000);
  CHECK(s.bytes_per_second(1, 2, rack) == Approx(1e8));
  CHECK(s.bytes_per_second(1, 3, rack) == Approx(1e8).epsilon(0.01));
  CHECK(s.bytes_per_second(1, 3, topology::distance::same_zone) > 1e9);
  for (int i = 0; i < 50; ++i) s.add(1, 3, rack, 1'000'000, 1'000);
  CHECK(s.bytes_per_second(1, 3, rack) == Approx(1e9));
  CHECK(s.bytes_per_second(1, 2, rack) == Approx(1e8));
  s.add(1, 4, rack, 100'000'000, 1'000);
  CHECK(s.fastest() == Approx(1e11));
  for (std::uint32_t i = 10; i < 10 + link_speeds::pairs_max; ++i)
    s.add(1, i, rack, 1'000'000, 1'000'000);
  CHECK(s.bytes_per_second(1, 10, rack) == Approx(1e6));
  // No room for this pair: its distance's.
  CHECK(s.bytes_per_second(1, 9 + link_speeds::pairs_max, rack) < 1e9);
}

TEST_CASE("a small pool is everybody's") {
  auto s = large_pool(worker_subsets::decision_workers_max);
  CHECK(s.of(1, 1).size() == worker_subsets::decision_workers_max);
  CHECK(as_set(s.of(1, 1)) == as_set(s.of(2, 7)));
  s.remove(3);
  s.remove(3);
  CHECK(s.of(1, 1).size() == worker_subsets::decision_workers_max - 1);
  s.add(3);
  s.add(3);
  CHECK(s.of(1, 1).size() == worker_subsets::decision_workers_max);
}

TEST_CASE("of a large pool each workload has its own workers, no two of them alike") {
  auto s = large_pool();
  const auto one = as_set(s.of(1, 5));
  CHECK(one.size() == worker_subsets::decision_workers_max);
  CHECK(as_set(s.of(1, 5)) == one);
  CHECK(as_set(s.of(1, 6)) == one);  // as long as one group is enough
  // 64 of 10,000 drawn twice share 0.4 on average.
  std::size_t shared = 0;
  for (std::uint64_t w = 2; w < 102; ++w) shared += common(one, as_set(s.of(w, 5)));
  CHECK(shared < 120);
  // All are used by somebody.
  std::set<std::uint32_t> used;
  for (std::uint64_t w = 0; w < 2'000; ++w)
    for (auto x : s.of(w, 0)) used.insert(x);
  CHECK(used.size() > 9'950);
}

TEST_CASE("workers that come and go change little of a workload's choice") {
  auto s = large_pool(1'000);
  const auto before = as_set(s.of(1, 1));
  for (std::uint32_t i = 0; i < 10; ++i) s.add(5'000 + i);
  CHECK(common(before, as_set(s.of(1, 1))) >= 58);
  const auto gone = *before.begin();
  s.remove(gone);
  const auto after = as_set(s.of(1, 1));
  CHECK(after.count(gone) == 0);
  CHECK(after.size() == worker_subsets::decision_workers_max);
  CHECK(common(before, after) >= 55);
}

TEST_CASE("a workload whose workers are busy gets more, in steps, and gives them back") {
  auto s = large_pool(1'000);
  s.of(1, 1);
  auto now = t0;
  s.note_wait(1, worker_subsets::grow_wait_seconds / 2, now);
  CHECK(s.size_of(1) == 64);
  for (int i = 0; i < 10; ++i) s.note_wait(1, 1, now);
  CHECK(s.size_of(1) == 128);
  CHECK(s.size_of(2) == 64);
  // A decision still looks at a group only, the same for the same conversation.
  CHECK(s.of(1, 1).size() == 64);
  CHECK(as_set(s.of(1, 1)) == as_set(s.of(1, 1)));
  std::set<std::uint32_t> all;
  for (std::uint64_t c = 0; c < 100; ++c)
    for (auto x : s.of(1, c)) all.insert(x);
  CHECK(all.size() == 128);
  for (int i = 0; i < 10; ++i) s.note_wait(1, 1, now += worker_subsets::grow_interval);
  CHECK(s.size_of(1) == 1'000);
  all.clear();
  for (std::uint64_t c = 0; c < 1'000; ++c)
    for (auto x : s.of(1, c)) all.insert(x);
  CHECK(all.size() == 1'000);
  now += worker_subsets::shrink_after / 2;
  s.note_wait(1, 0, now);
  CHECK(s.size_of(1) == 1'000);
  for (int i = 0; i < 10; ++i) s.note_wait(1, 0, now += worker_subsets::shrink_after * 2);
  CHECK(s.size_of(1) == 64);
}

TEST_CASE("workloads beyond the limit begin small again, and nobody else notices") {
  auto s = large_pool(200);
  const auto first = as_set(s.of(7, 1));
  s.note_wait(7, 1, t0);
  CHECK(s.size_of(7) == 128);
  for (std::uint64_t w = 100; w < 100 + worker_subsets::workloads_max; ++w) s.of(w, 1);
  CHECK(s.size_of(7) == 64);
  CHECK(as_set(s.of(7, 1)) == first);
}

TEST_CASE("work is counted in seconds of capacity, and fades") {
  work_meter m;
  auto now = t0;
  m.add(1'000'000, 5'000, 1e-3, 1e-2, now);
  CHECK(m.seconds() == 0);  // nobody knows when that was
  CHECK(m.unseen() == 1);
  m.add(1'000'500, 5'050, 1e-3, 1e-2, now += 1s);
  CHECK(m.seconds() == Approx(1));
  m.add(1'000'500, 5'050, 1e-3, 1e-2, now += work_meter::window);
  CHECK(m.seconds() == Approx(std::exp(-1.0)));
  // Half of the time, for long: half of the window.
  work_meter half;
  for (std::uint64_t i = 0; i <= 600; ++i) half.add(i * 500, 0, 1e-3, 0, now += 1s);
  CHECK(half.seconds() == Approx(30).epsilon(0.02));
  CHECK(half.unseen() < 1e-3);
  // Another engine's counters.
  half.add(3, 0, 1e-3, 0, now += 1s);
  CHECK(half.seconds() == 0);
  half.add(503, 0, 1e-3, 0, now += 1s);
  CHECK(half.seconds() == Approx(0.5));
}

TEST_CASE("beginnings that are asked for often are told from others, as long as they are") {
  prefix_rates rates;
  auto now = t0;
  CHECK(rates.note(1, now) == Approx(1));
  for (int i = 0; i < 9; ++i) rates.note(1, now);
  CHECK(rates.note(1, now) == Approx(11));
  CHECK(rates.note(2, now) == Approx(1));
  CHECK(rates.note(1, now + prefix_rates::window) == Approx(1 + 11 * std::exp(-1.0)));
  // A thousand times as many as there are places: none is taken for another, and what is asked for
  // all the time keeps its own.
  for (std::uint64_t i = 0; i < 400'000; ++i) {
    REQUIRE(rates.note(100 + i, now) == 1);
    if (i % 1'000 == 0) rates.note(7, now += 100ms);
  }
  CHECK(rates.note(7, now) > 50);
}
