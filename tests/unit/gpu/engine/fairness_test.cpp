// Whether each job gets what is due to it: one that is forgotten is named, and load alone never
// makes one.

#include "messages/base/planted.hpp"
#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include <algorithm>
#include <random>

using namespace troupe;
using namespace troupe::engine;
using namespace troupe::engine::test;
using namespace std::chrono_literals;

namespace {

/// Far below what is called a stall.
constexpr double turns_of_load_max = 8;

struct plant {
  plant() { planted::present = planted::bug::forget_job; }
  ~plant() { planted::present = planted::bug::none; }
};
/// One that the planted bug forgets, and some that it doesn't.
constexpr job_id forgotten = 7;

/// An engine each of whose steps takes 10 ms.
struct timed {
  explicit timed(batching_limits limits = {}, std::uint32_t cells = 0)
      : r(limits, simulated(cells), options()) {}

  static simulated_options simulated(std::uint32_t cells) {
    simulated_options o;
    if (cells > 0) o.cells = cells;
    return o;
  }
  engine_options options() {
    engine_options o;
    o.now = [this] { return now; };
    return o;
  }
  /// The job that is passed over most, after so many steps.
  passed_over_job after(int steps) {
    for (int i = 0; i < steps; ++i) {
      r.step();
      now += 10ms;
      most = std::max(most, passed_over().turns);
    }
    return passed_over();
  }
  passed_over_job passed_over() const { return r.machine->gauges().passed_over; }

  std::chrono::steady_clock::time_point now{1h};
  rig r;
  double most = 0;  ///< turns that any job missed at any time
};

}  // namespace

TEST_CASE("a job that is forgotten while others get on is named, with the turns that it missed") {
  const plant bug;
  timed t;
  SECTION("in the middle of its prompt") {
    REQUIRE(t.r.machine->submit(generate(forgotten, prompt_of(20), 100)));
  }
  SECTION("a prompt for another engine") {
    REQUIRE(t.r.machine->submit(prefill(forgotten, prompt_of(20))));
  }
  SECTION("that must run alone") {
    auto spec = generate(forgotten, prompt_of(20), 100);
    spec.alone = true;
    REQUIRE(t.r.machine->submit(spec));
  }
  SECTION("in the middle of its answer") {
    planted::present = planted::bug::none;
    REQUIRE(t.r.machine->submit(generate(forgotten, prompt_of(20), 100)));
    t.after(10);
    planted::present = planted::bug::forget_job;
  }
  for (job_id id = 1; id <= 3; ++id)
    REQUIRE(t.r.machine->submit(generate(id, prompt_of(20, static_cast<unsigned>(id)), 1'000)));
  const auto first = t.after(50);
  CHECK(first.job == forgotten);
  CHECK(first.turns > 20);
  CHECK(first.still >= 100ms);
  const auto later = t.after(100);
  CHECK(later.job == forgotten);
  CHECK(later.turns >= first.turns + 45);  // one that runs alone is owed every second pass
  CHECK(later.still > first.still);
  t.r.machine->cancel(forgotten);
  CHECK(t.after(20).turns < 2);
}

TEST_CASE("a job that is forgotten by an engine that has nothing else is named soon") {
  const plant bug;
  timed t;
  REQUIRE(t.r.machine->submit(generate(forgotten, prompt_of(20), 100)));
  for (int second = 0; second < 7; ++second) {
    t.after(1);
    t.now += 1s;  // an engine that found nothing to do looks again once a second
  }
  CHECK(t.passed_over().job == forgotten);
  CHECK(t.passed_over().turns > 32);
  CHECK(t.passed_over().still > 5s);
}

TEST_CASE("a job that gets on was not forgotten, however late") {
  timed t;
  {
    const plant bug;
    REQUIRE(t.r.machine->submit(generate(forgotten, prompt_of(20), 100)));
    REQUIRE(t.r.machine->submit(generate(1, prompt_of(20, 1), 100)));
    CHECK(t.after(30).turns > 20);
  }
  CHECK(t.after(1).turns == 0);
  t.r.run();
  CHECK(t.r.events.done.size() == 2);
}

TEST_CASE("who rightly waits has missed nothing") {
  batching_limits limits;
  timed t{limits};
  SECTION("for its turn, while more decode than fit") {
    limits.step_tokens = 3;
    limits.slots = 32;
    timed many{limits};
    for (job_id id = 1; id <= 31; ++id)
      REQUIRE(many.r.machine->submit(
          generate(id, prompt_of(4, static_cast<unsigned>(id)), 20 + id % 7)));
    while (many.r.machine->gauges().running + many.r.machine->gauges().queued > 0 ||
           many.r.events.done.empty())
      many.after(1);
    CHECK(many.r.events.done.size() == 31);
    CHECK(many.most <= 4);
  }
  SECTION("for a slot") {
    limits.slots = 1;
    timed one{limits};
    for (job_id id = 1; id <= 3; ++id)
      REQUIRE(one.r.machine->submit(generate(id, prompt_of(20, static_cast<unsigned>(id)), 300)));
    one.after(1'000);
    CHECK(one.r.events.done.size() == 3);
    CHECK(one.most == 0);
  }
  SECTION("behind prompts of a higher rank, for as long as they keep coming") {
    limits.step_tokens = 16;
    limits.prefix_reuse = false;
    timed busy{limits};
    REQUIRE(busy.r.machine->submit(generate(1, prompt_of(100), 10)));
    for (job_id id = 2; id < 60; ++id) {
      auto urgent = generate(id, prompt_of(400, static_cast<unsigned>(id)), 1);
      urgent.priority = 1;
      REQUIRE(busy.r.machine->submit(urgent));
      busy.after(20);
    }
    CHECK_FALSE(busy.r.events.answers.contains(1));
    CHECK(busy.most <= 1);
  }
  SECTION("for a grant, or for KV from elsewhere") {
    REQUIRE(t.r.machine->submit(prefill(1, prompt_of(50))));
    auto imports = generate(2, prompt_of(50, 2), 10);
    imports.prefill_here = false;
    REQUIRE(t.r.machine->submit(imports));
    REQUIRE(t.r.machine->submit(generate(3, prompt_of(50, 3), 500)));
    t.after(400);
    CHECK(t.most == 0);
  }
  SECTION("for passes of jobs that run alone") {
    for (job_id id = 1; id <= 6; ++id) {
      auto spec = generate(id, prompt_of(2'000, static_cast<unsigned>(id)), 50);
      spec.alone = id > 2;
      REQUIRE(t.r.machine->submit(spec));
    }
    t.after(400);
    CHECK(t.r.events.done.size() == 6);
    CHECK(t.most <= 2);
  }
}

TEST_CASE("under any load nobody misses more than a few turns", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (int round = 0; round < 6; ++round) {
    batching_limits limits;
    limits.slots = 2 + below(20);
    limits.kv_tokens = 400 + below(1'600);
    limits.step_tokens = 4U << below(5);
    limits.probe_cells = probe_cells_needed;
    limits.cached_prefixes = below(4);
    timed t{limits, limits.kv_tokens + probe_cells_needed};
    std::vector<job_id> open, ungranted;
    job_id next = 1;
    for (int step = 0; step < 600; ++step) {
      for (auto i = below(3); i > 0 && next < 400; --i) {
        const auto id = next++;
        const auto prompt = prompt_of(1 + below(below(4) == 0 ? 300 : 40), below(5));
        const auto priority = static_cast<std::uint8_t>(below(3));
        if (below(5) == 0) {
          auto spec = prefill(id, prompt);
          spec.priority = priority;
          spec.alone = below(8) == 0;
          REQUIRE(t.r.machine->submit(spec));
          ungranted.push_back(id);
        } else {
          auto spec = generate(id, prompt, 1 + below(40));
          spec.priority = priority;
          spec.alone = below(12) == 0;
          spec.prefill_here = below(10) != 0;
          spec.choices = spec.prefill_here ? static_cast<std::uint16_t>(1 + below(3) / 2) : 1;
          spec.probe = below(20) == 0;
          if (spec.probe) spec = generate(id, prompt_of(2), 1), spec.probe = true;
          if (!t.r.machine->submit(spec)) continue;
        }
        open.push_back(id);
      }
      if (!ungranted.empty() && below(6) == 0) {
        t.r.machine->grant_delivery(ungranted.back(), 0);
        ungranted.pop_back();
      }
      if (!open.empty() && below(8) == 0)
        t.r.machine->cancel(open[below(static_cast<unsigned>(open.size()))]);
      const auto worst = t.after(1);
      t.r.events.pieces.clear();
      INFO("round " << round << ", step " << step << ": job " << worst.job << " missed "
                    << worst.turns << " turns");
      REQUIRE(worst.turns <= turns_of_load_max);
    }
    CHECK(t.r.events.done.size() > 10);
  }
}
