#include "actors/health/probe_policy.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace troupe::health;
using namespace std::chrono_literals;

namespace {

constexpr auto report = 1s;

struct probed {
  probe_limits limits;
  probe_policy policy{limits};
  engine_account is;
  progress_watch::time_point now{1h};

  /// A report later: whether a probe is sent. An idle engine still looks for work.
  bool wait(std::chrono::milliseconds time = report) {
    ++is.steps;
    now += time;
    return policy.due(is, now);
  }
  /// How long until a probe is sent.
  std::chrono::milliseconds until_sent(std::chrono::milliseconds at_most = 10min) {
    auto waited = 0ms;
    while (waited < at_most && !wait()) waited += report;
    return waited;
  }
};

}  // namespace

TEST_CASE("an engine is probed when no request has got on for a while, and again after that") {
  probed p;
  for (int i = 0; i < 5; ++i) {
    const auto waited = p.until_sent();
    CHECK(waited >= p.limits.after - 2 * report);
    CHECK(waited <= p.limits.after + 2 * report);
    p.policy.answered();
    CHECK(p.policy.judge().what == verdict::healthy);
  }
}

TEST_CASE("an engine whose requests get on is never probed") {
  probed p;
  for (int i = 0; i < 1'000; ++i) {
    ++p.is.tokens;
    CHECK_FALSE(p.wait(5s));
  }
  for (int i = 0; i < 1'000; ++i) {
    p.is.transferred += 100;  // KV comes in
    CHECK_FALSE(p.wait(5s));
  }
}

TEST_CASE("two probes in a row without an answer prove that it hangs") {
  probed p;
  p.until_sent();
  auto waited = 0ms;
  int sent = 1;
  while (p.policy.judge().what == verdict::healthy && waited < 1min) {
    sent += p.wait();
    waited += report;
  }
  CHECK(sent == 2);
  CHECK(waited >= 2 * p.limits.timeout);
  CHECK(waited <= 2 * p.limits.timeout + 4 * report);
  CHECK_THAT(p.policy.judge().evidence, Catch::Contains("no answer within 5000 ms"));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(p.wait());  // once is enough
}

TEST_CASE("one lost probe proves nothing") {
  probed p;
  p.until_sent();
  CHECK(p.until_sent() <= p.limits.timeout + 2 * report);  // the second one
  p.policy.answered();
  for (int i = 0; i < 9; ++i) CHECK_FALSE(p.wait());
  CHECK(p.policy.judge().what == verdict::healthy);
  CHECK(p.policy.unanswered() == 0);
}

TEST_CASE("while anything moves an unanswered probe is held against nobody") {
  const std::string what = GENERATE("ticks", "busy", "tokens", "inside a step");
  probed p;
  p.until_sent();
  for (int i = 0; i < 600; ++i) {
    if (what == "ticks") ++p.is.ticks;
    if (what == "busy") p.is.busy += 1ms;
    if (what == "tokens") ++p.is.tokens;
    if (what == "inside a step") {
      --p.is.steps;  // `wait` adds one
      p.is.stepping = true;
    }
    p.wait();
    REQUIRE(p.policy.judge().what == verdict::healthy);
  }
}

TEST_CASE("time without accounts is not held against the engine") {
  probed p;
  p.until_sent();
  for (int i = 0; i < 3; ++i) {
    p.wait(10min);  // the process stood still, or its link was down
    REQUIRE(p.policy.judge().what == verdict::healthy);
    p.policy.answered();
    p.until_sent();
  }
}

TEST_CASE("a late answer after one timeout clears it") {
  probed p;
  p.until_sent();
  p.until_sent();
  p.wait(), p.wait();
  p.policy.answered();
  CHECK(p.until_sent() >= p.limits.after - 2 * report);
  CHECK(p.policy.judge().what == verdict::healthy);
}

namespace {

/// An engine whose requests get on to where it computes, and are failed there by itself.
struct faulty : probed {
  /// A report later, with another request failed.
  bool fails(std::chrono::milliseconds time = report) {
    is.tokens += 100;
    ++is.faults;
    return wait(time);
  }
};

}  // namespace

TEST_CASE("an engine that fails jobs itself is probed, and broken when it fails those, too") {
  faulty p;
  p.wait();
  std::uint32_t sent = 0;
  for (int i = 0; i < 100 && p.policy.judge().what == verdict::healthy; ++i) {
    if (!p.fails()) continue;
    ++sent;
    p.policy.failed("garbage_output");
  }
  CHECK(sent == probes_failed_max);
  CHECK(p.policy.judge().what == verdict::broken);
  CHECK_THAT(p.policy.judge().evidence, Catch::Contains("garbage_output"));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(p.fails());  // once is enough
}

TEST_CASE(
    "an engine that fails a job now and then, or others' KV, answers its probe and is left alone") {
  faulty p;
  p.wait();
  for (int i = 0; i < 100; ++i) {
    CHECK(p.fails());
    if (i % 3 != 0) {
      p.policy.failed("engine_failed");
      CHECK(p.wait());
    }
    p.policy.answered();
    CHECK_FALSE(p.wait());
    CHECK(p.policy.judge().what == verdict::healthy);
  }
}

TEST_CASE("a probe of a faulty engine whose answer got lost is sent again, one at a time") {
  faulty p;
  p.wait();
  int sent = 0;
  for (int i = 0; i < 60; ++i) sent += p.fails();
  CHECK(sent >= 60 / (2 * p.limits.timeout / report + 2));
  CHECK(sent <= 60 / (2 * p.limits.timeout / report));
  CHECK(p.policy.judge().what == verdict::healthy);
}
