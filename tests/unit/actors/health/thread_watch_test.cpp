#include "actors/health/thread_watch.hpp"

#include <catch2/catch.hpp>

using namespace troupe::health;
using namespace std::chrono_literals;

namespace {

constexpr auto report = 1s;  // between accounts, as workers send them

/// A worker's tokenisers, and who watches them.
struct tokenisers {
  tokeniser_limits limits;
  tokeniser_watch watch{limits};
  preparing_account is;
  tokeniser_watch::time_point now{1h};

  std::optional<std::string> wait(std::chrono::milliseconds time = report) {
    now += time;
    return watch.judge(is, now);
  }
  /// How long until they are called stuck, while the threads compute for so much of each second.
  std::chrono::milliseconds until_stuck(std::chrono::milliseconds computed = 0ms,
                                        std::chrono::milliseconds at_most = 1h) {
    auto waited = 0ms;
    for (wait(); waited < at_most; waited += report) {
      is.computed += computed;
      if (wait()) break;
    }
    return waited;
  }
};

}  // namespace

TEST_CASE("tokenisers without work are well for ever") {
  tokenisers t;
  t.is.sign = 7;
  CHECK(t.until_stuck() == 1h);
  t.is.waiting = 1;  // it comes after all that time
  CHECK_FALSE(t.wait());
  CHECK_FALSE(t.wait());
}

TEST_CASE("a queue that gets on is well, however long it is") {
  tokenisers t;
  t.is = {2, 1'000, 1, 0ms, 0};
  for (int i = 0; i < 10'000; ++i) {
    ++t.is.sign;
    REQUIRE_FALSE(t.wait());
  }
}

TEST_CASE(
    "a prompt that gives signs of progress is never stuck, and one that computes long isn't") {
  tokenisers t;
  t.is = {1, 5, 1, 0ms, 0};
  for (int i = 0; i < 1'000; ++i) {  // each step takes a minute of computing at half a core
    t.is.computed = 59s;
    REQUIRE_FALSE(t.wait());
    ++t.is.sign;
    t.is.computed = 0ms;
    REQUIRE_FALSE(t.wait());
  }
  t.is.computed = t.limits.computing_max;
  CHECK_FALSE(t.wait());
}

TEST_CASE("a busy machine doesn't make a prompt stuck: its thread's own time counts") {
  tokenisers t;
  t.is = {1, 5, 1, 0ms, 0};
  CHECK(t.until_stuck(50ms) >= 1'100s);  // a twentieth of a core: twenty times the limit
}

TEST_CASE("a prompt that loops is found, sooner while others wait") {
  tokenisers alone;
  alone.is = {1, 0, 1, 0ms, 0};
  const auto found = alone.until_stuck(1s);
  CHECK(found >= alone.limits.computing_alone_max);
  CHECK(found <= alone.limits.computing_alone_max + 2 * report);
  tokenisers t;
  t.is = {2, 1, 1, 0ms, 0};
  const auto sooner = t.until_stuck(1s);
  CHECK(sooner >= t.limits.computing_max);
  CHECK(sooner <= t.limits.computing_max + 2 * report);
  CHECK_THAT(*t.wait(), Catch::Contains("without getting on") && Catch::Contains("1 behind it"));
}

TEST_CASE("a long prompt may compute longer") {
  tokenisers t;
  t.is = {1, 1, 1, 0ms, 8U << 20U};
  const auto found = t.until_stuck(1s);
  CHECK(found > t.limits.computing_max + 160s);
  CHECK(found < t.limits.computing_max + 180s);
}

TEST_CASE("a thread that stands is found, with a prompt in hand and without") {
  for (const auto in_hand : {0U, 1U}) {
    tokenisers t;
    t.is = {in_hand, 3, 9, 0ms, 0};
    const auto found = t.until_stuck();
    CHECK(found >= t.limits.still_max);
    CHECK(found <= t.limits.still_max + 2 * report);
    CHECK_THAT(*t.wait(), Catch::Contains("ms were allowed"));
    ++t.is.sign;  // it goes on after all
    CHECK_FALSE(t.wait());
  }
}

TEST_CASE("a process that was stopped is not blamed for the time") {
  for (const auto hang : {100ms, 2'000ms, 5'000ms})
    for (const auto gap : {500ms, 2'000ms, 10'000ms}) {
      tokenisers t;
      t.watch = tokeniser_watch{tokeniser_limits_of(hang, gap)};
      t.is = {2, 4, 9, 700ms, 0};
      CHECK_FALSE(t.wait());
      for (int i = 0; i < 5; ++i) {
        CHECK_FALSE(t.wait(1h));  // what it says first, before its threads have run
        CHECK_FALSE(t.wait(10ms));
        ++t.is.sign;
        CHECK_FALSE(t.wait());
      }
    }
}

TEST_CASE("a short hang_timeout doesn't make tokenisers quicker; a long one gives them time") {
  CHECK(tokeniser_limits_of(100ms, 200ms).computing_max == tokeniser_limits{}.computing_max);
  CHECK(tokeniser_limits_of(5s, 2s).still_max == tokeniser_limits{}.still_max);
  CHECK(tokeniser_limits_of(60s, 2s).computing_max == 12min);
}

TEST_CASE("a transport whose thread comes round is well, as is one without a thread") {
  transport_watch watch;
  transport_watch::time_point now{1h};
  for (int i = 0; i < 1'000; ++i) REQUIRE_FALSE(watch.judge({.rounds = 0}, now += 1s));
  for (std::uint64_t i = 1; i < 1'000; ++i) REQUIRE_FALSE(watch.judge({.rounds = i}, now += 4s));
}

TEST_CASE("a transport whose thread stands is found, but not the time in which all stood") {
  const transport_limits limits;
  transport_watch watch{limits};
  transport_watch::time_point now{1h};
  CHECK_FALSE(watch.judge({.rounds = 10}, now));
  CHECK_FALSE(watch.judge({.rounds = 10}, now += 1h));
  CHECK_FALSE(watch.judge({.rounds = 10}, now += 10ms));
  CHECK_FALSE(watch.judge({.rounds = 11}, now += 1s));
  auto waited = 0ms;
  std::optional<std::string> found;
  for (; !found && waited < 1h; waited += report)
    found = watch.judge({.rounds = 11}, now += report);
  REQUIRE(found);
  CHECK(waited <= limits.still_max + 2 * report);
  CHECK_THAT(*found, Catch::Contains("not come round for"));
  CHECK_FALSE(watch.judge({.rounds = 12}, now += report));
}

TEST_CASE("a transport that cannot be connected with any more is found at once") {
  transport_watch watch;
  transport_watch::time_point now{1h};
  CHECK_FALSE(watch.judge({.rounds = 10}, now));
  const auto found = watch.judge({.rounds = 20, .device_changed = 2}, now += report);
  REQUIRE(found);
  CHECK_THAT(*found, Catch::Contains("2 connections") && Catch::Contains("network device"));
}
