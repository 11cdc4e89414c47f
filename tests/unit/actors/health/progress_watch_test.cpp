#include "actors/health/job_watch.hpp"
#include "actors/health/progress_watch.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

using namespace troupe::health;
using namespace std::chrono_literals;

namespace {

constexpr auto report = 1s;  // between accounts, as workers send them

/// An engine and its watchdog. Steps cost 5 ms each and 1 ms a token.
struct patient {
  watch_limits limits;
  progress_watch watch{limits};
  engine_account is;
  progress_watch::time_point now{1h};
  std::chrono::microseconds per_step = 5ms, per_token = 1ms;

  judgement wait(std::chrono::milliseconds time = report) {
    now += time;
    return watch.judge(is, now);
  }
  /// Computes for about a second, with steps of so many tokens, or one step; reports meanwhile.
  judgement work(std::uint32_t tokens, bool ticks = false) {
    const auto step = per_step + per_token * tokens;
    auto left = step;
    for (; left > report; left -= report) {
      is.stepping = true;
      is.at_hand = tokens;
      is.ticks += ticks ? 30 : 0;
      CHECK(wait().what != verdict::hung);
    }
    auto spent = left;
    step_ended(tokens, step, ticks);
    for (; step < report && spent < report; spent += step) step_ended(tokens, step, ticks);
    is.stepping = false;
    return wait(std::chrono::duration_cast<std::chrono::milliseconds>(spent));
  }
  void step_ended(std::uint32_t tokens, std::chrono::microseconds took, bool ticks) {
    ++is.steps;
    is.ticks += ticks ? 30 : 1;
    is.tokens += tokens;
    is.busy += took;
  }
  void learn() {
    for (int i = 0; i < 40; ++i) {
      REQUIRE(work(8).what == verdict::healthy);
      REQUIRE(work(256).what == verdict::healthy);
    }
  }
  /// In a step that never ends: how long until that is called a hang.
  std::chrono::milliseconds until_hung(std::chrono::milliseconds at_most = 1h) {
    auto waited = 0ms;
    is.stepping = true;
    while (waited < at_most && wait().what != verdict::hung) waited += report;
    return waited;
  }
};

}  // namespace

TEST_CASE("an engine that waits is healthy for ever") {
  patient p;
  p.learn();
  p.is.stepping = false;
  for (int i = 0; i < 10'000; ++i) REQUIRE(p.wait().what == verdict::healthy);
}

TEST_CASE("an engine that ticks inside its steps is hung when it doesn't any more") {
  patient p;
  p.is.stepping = true;
  p.is.at_hand = 512;
  p.wait();
  for (int i = 0; i < 600; ++i) {  // one step of ten minutes, ticking
    p.is.ticks += 40;
    REQUIRE(p.wait().what == verdict::healthy);
  }
  const auto found = p.until_hung();
  CHECK(found >= p.limits.tick_gap_max);
  CHECK(found <= p.limits.tick_gap_max + 2 * report);
  const auto evidence = p.wait().evidence;
  CHECK_THAT(evidence, Catch::Contains("512 tokens") && Catch::Contains("without progress"));
}

TEST_CASE("an engine that says that it ticks is not given a step's time by a watchdog that has "
          "just begun") {
  patient p;
  p.is.ticks_inside = GENERATE(false, true);
  p.is.at_hand = 12;
  // As often as steps, those without work among them: nothing to be seen.
  for (int i = 0; i < 3; ++i) p.is.steps += 5, p.is.ticks += 4, p.wait();
  const auto found = p.until_hung();
  CHECK(found <=
        (p.is.ticks_inside ? p.limits.tick_gap_max : p.limits.unmeasured_step_max) + 2 * report);
  CHECK(found >= (p.is.ticks_inside ? p.limits.tick_gap_max : p.limits.unmeasured_step_max));
}

TEST_CASE("an engine with short steps is seen to tick, too") {
  patient p;
  p.work(1, true);
  p.work(1, true);
  CHECK(p.until_hung() <= p.limits.tick_gap_max + 2 * report);
}

TEST_CASE("where a whole step takes long, ticks may be as far apart") {
  patient p;
  p.per_token = 40ms;  // 512 tokens take 20 s
  for (int i = 0; i < 40; ++i) {
    p.work(8, true);
    p.work(512, true);
  }
  p.is.at_hand = 512;
  const auto found = p.until_hung();
  CHECK(found > 20s);
  CHECK(found < 40s);
  patient small;
  small.per_token = 40ms;
  for (int i = 0; i < 80; ++i) small.work(8, true);
  small.is.at_hand = 1;
  CHECK(small.until_hung() <= small.limits.tick_gap_max + 2 * report);
}

TEST_CASE("an engine that doesn't tick has the time that its tokens explain") {
  patient p;
  p.per_token = 40ms;  // 512 tokens take 20 s
  p.learn();
  p.is.at_hand = 512;
  const auto found = p.until_hung();
  CHECK(found > 20s);
  CHECK(found < 20s * p.limits.slowness_allowed + 10s);
  patient small;
  small.per_token = 40ms;
  small.learn();
  small.is.at_hand = 1;
  CHECK(small.until_hung() <= small.limits.silent_step_max + 2 * report);
}

TEST_CASE("that the whole process stood still does not make a hang credible") {
  const bool ticks = GENERATE(false, true);
  patient p;
  for (int i = 0; i < 40; ++i) p.work(8, ticks), p.work(256, ticks);
  p.work(256, ticks);
  // Within a pass it is stopped; it goes on, and that pass takes 8 s by the clock.
  p.is.stepping = true;
  p.is.at_hand = 256;
  p.wait();
  CHECK(p.wait(8s).what == verdict::healthy);
  p.is.stepping = false;
  p.step_ended(256, 8s + p.per_step + 256 * p.per_token, ticks);
  CHECK(p.wait().what == verdict::healthy);
  // Its jobs have gone elsewhere; it has little to do since.
  for (int i = 0; i < 10; ++i) {
    p.step_ended(1, p.per_step + p.per_token, ticks);
    p.wait();
  }
  p.is.at_hand = 512;
  CHECK(p.until_hung() <= (ticks ? p.limits.tick_gap_max : p.limits.silent_step_max) + 2 * report);
}

TEST_CASE("a step without work that an account happens to see makes no hang credible") {
  patient p;
  p.learn();
  p.is.at_hand = 1;
  p.is.stepping = true;
  p.wait();
  ++p.is.steps;
  p.is.stepping = false;
  p.wait();
  p.is.at_hand = 512;
  CHECK(p.until_hung() <= p.limits.silent_step_max + 2 * report);
}

TEST_CASE("what was slow once is credible for some minutes of computing, not for ever") {
  patient p;
  p.learn();
  p.is.at_hand = 256;
  p.per_step = 5s;  // a neighbour has the machine
  for (int i = 0; i < 3; ++i) p.work(256);
  p.per_step = 5ms;
  auto soon = p;
  soon.is.at_hand = 256;
  CHECK(soon.until_hung() > 20s);
  for (int i = 0; i < 1'000; ++i) p.work(256);
  p.is.at_hand = 256;
  CHECK(p.until_hung() <= p.limits.silent_step_max + 2 * report);
}

TEST_CASE("an engine that nobody has measured has a generous time") {
  patient p;
  p.is.at_hand = 512;
  const auto found = p.until_hung();
  CHECK(found >= p.limits.unmeasured_step_max);
  CHECK(found <= p.limits.unmeasured_step_max + 2 * report);
}

TEST_CASE("a step that began since the last account is not held against the engine") {
  patient p;
  p.learn();
  p.is.stepping = false;
  for (int i = 0; i < 100; ++i) p.wait();
  p.is.stepping = true;
  CHECK(p.wait().what == verdict::healthy);
}

TEST_CASE("missing accounts are no proof") {
  patient p;
  p.learn();
  p.is.stepping = false;
  p.wait();
  p.is.stepping = true;
  CHECK(p.wait(10min).what == verdict::healthy);  // the first account of this step
  // The whole process stood still in the middle of a step, and its account is quicker than its
  // engine.
  CHECK(p.wait(10min).what == verdict::healthy);
  CHECK(p.until_hung() >= p.limits.silent_step_max - p.limits.account_gap_max);
}

TEST_CASE("an engine that has jobs and takes no step is stuck") {
  patient p;
  p.learn();
  p.is.stepping = false;
  for (int i = 0; i < 100; ++i) REQUIRE(p.wait().what == verdict::healthy);  // nothing to do
  p.is.jobs = 3;
  for (int i = 0; i < 100; ++i) {  // waits for KV, say
    ++p.is.steps;
    REQUIRE(p.wait().what == verdict::healthy);
  }
  auto waited = 0ms;
  judgement found;
  while (found.what != verdict::hung && waited < 1min) {
    found = p.wait();
    waited += report;
  }
  CHECK(waited > p.limits.pause_max);
  CHECK(waited <= p.limits.pause_max + 2 * report);
  CHECK_THAT(found.evidence, Catch::Contains("3 jobs and no step"));
}

TEST_CASE("slow is judged against what is usual for the same kind of work") {
  patient p;
  p.learn();
  SECTION("decode after prefill is no slowness") {
    for (int i = 0; i < 100; ++i) REQUIRE(p.work(1).what == verdict::healthy);
    for (int i = 0; i < 100; ++i) REQUIRE(p.work(512).what == verdict::healthy);
  }
  SECTION("ten times slower is slow, and no hang; it is healthy again when that is over") {
    p.per_step *= 10;
    p.per_token *= 10;
    int slow = 0;
    for (int i = 0; i < 30; ++i) {
      const auto j = p.work(i % 2 == 0 ? 8 : 256);
      REQUIRE(j.what != verdict::hung);
      slow += j.what == verdict::slow;
    }
    CHECK(slow > 10);
    p.per_step /= 10;
    p.per_token /= 10;
    for (int i = 0; i < 10; ++i) p.work(8);
    CHECK(p.work(8).what == verdict::healthy);
  }
  SECTION("idle time between steps is no slowness") {
    for (int i = 0; i < 200; ++i) {
      ++p.is.steps;
      p.is.tokens += 8;
      p.is.busy += 13ms;
      p.is.stepping = false;
      REQUIRE(p.wait().what == verdict::healthy);
    }
  }
}

TEST_CASE("a slow engine recovers only when its steps are near the usual again, and says so with "
          "figures") {
  patient p;
  for (int i = 0; i < 80; ++i) p.work(8);
  const auto step = p.per_step, token = p.per_token;
  auto at_speed = [&](double slowness, int seconds) {
    p.per_step = std::chrono::duration_cast<std::chrono::microseconds>(step * slowness);
    p.per_token = std::chrono::duration_cast<std::chrono::microseconds>(token * slowness);
    judgement last;
    for (int i = 0; i < seconds; ++i) last = p.work(8);
    return last;
  };
  const auto slow = at_speed(8, 30);
  CHECK(slow.what == verdict::slow);
  CHECK_THAT(slow.evidence, Catch::Contains("steps with") && Catch::Contains("tokens took") &&
                                Catch::Contains("times the"));
  CHECK(at_speed(3.5, 60).what == verdict::slow);  // better, but it would go to and fro
  CHECK(at_speed(1.5, 30).what == verdict::healthy);
}

TEST_CASE("an engine that was slow and has had nothing to do is tried again, with less patience") {
  patient p;
  p.learn();
  p.per_step *= 10;
  p.per_token *= 10;
  for (int i = 0; i < 30; ++i) p.work(8);
  CHECK(p.wait().what == verdict::slow);
  auto waited = 0s;
  while (p.wait().what == verdict::slow && waited < 10min) ++waited;
  CHECK(waited >= p.limits.slow_memory - 3s);
  CHECK(waited <= p.limits.slow_memory + 3s);
  SECTION("still slow: one measurement is enough") {
    int healthy = 0;
    while (p.work(8).what == verdict::healthy && healthy < 100) ++healthy;
    CHECK(healthy <= p.limits.measurement / report + 1);
  }
  SECTION("quick again") {
    p.per_step /= 10;
    p.per_token /= 10;
    for (int i = 0; i < 100; ++i) REQUIRE(p.work(8).what == verdict::healthy);
  }
}

TEST_CASE("an engine that forgets jobs again and again is slow, and never hung") {
  patient p;
  p.learn();
  p.is.jobs = 9;
  for (std::size_t i = 1; i < p.limits.stalls_max; ++i) {
    ++p.is.stalls;
    REQUIRE(p.work(8).what == verdict::healthy);
  }
  SECTION("so often within the time that is remembered") {
    ++p.is.stalls;
    const auto is = p.work(8);
    CHECK(is.what == verdict::slow);
    CHECK_THAT(is.evidence, Catch::Contains("forgot 3 of its jobs"));
    auto lasts = 0ms;
    while (p.work(8).what == verdict::slow && lasts < 1h) lasts += report;
    CHECK(lasts > p.limits.stall_memory / 2);
    CHECK(lasts <= p.limits.stall_memory + 2 * report);
  }
  SECTION("each long after the one before: that is no habit") {
    for (int i = 0; i < 10; ++i) {
      for (auto t = 0ms; t <= p.limits.stall_memory; t += report) p.work(8);
      ++p.is.stalls;
      REQUIRE(p.work(8).what == verdict::healthy);
    }
  }
  SECTION("many at once, for ever") {
    for (int i = 0; i < 1'000; ++i) {
      p.is.stalls += 100;
      REQUIRE(p.work(8).what == verdict::slow);
    }
  }
}

TEST_CASE("a job is taken for forgotten when it missed many turns, and for long") {
  const stall_limits limits;
  const auto turns = limits.turns_max;
  const auto still = limits.still_max;
  CHECK_FALSE(stall_of({}, limits));
  CHECK_FALSE(stall_of({turns * 100, still}, limits));  // a quick engine
  CHECK_FALSE(stall_of({turns, still * 100}, limits));  // a slow one, or one that stood still
  const auto found = stall_of({turns + 1, still + 1ms}, limits);
  REQUIRE(found);
  CHECK_THAT(*found, Catch::Contains("5001 ms") && Catch::Contains("33 turns"));
}

TEST_CASE("whoever makes progress is never hung, however slow and however loaded", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  for (int engine = 0; engine < 50; ++engine) {
    patient p;
    const bool ticks = random() % 2 == 0;
    double slowness = 1;
    for (int step = 0; step < 300; ++step) {
      // Bit by bit: what nobody ever saw can't be told from a hang.
      slowness = std::clamp(slowness * (random() % 2 == 0 ? 1.15 : 0.9), 1.0, 50.0);
      const auto tokens = 1 + static_cast<std::uint32_t>(random() % 512);
      const auto takes = std::chrono::duration_cast<std::chrono::microseconds>(
          (5ms + 3ms * tokens) * slowness);
      p.is.stepping = true;
      p.is.at_hand = tokens;
      for (auto left = takes; left > 0us; left -= report) {
        if (ticks) p.is.ticks += 40;
        const auto j = p.wait();
        INFO("engine " << engine << " step " << step << " tokens " << tokens << " takes "
                       << takes.count() << " us: " << j.evidence);
        REQUIRE(j.what != verdict::hung);
      }
      ++p.is.steps;
      ++p.is.ticks;
      p.is.tokens += tokens;
      p.is.busy += takes;
      p.is.stepping = random() % 3 != 0;
      p.wait();
    }
  }
}
