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
    CHECK(p.policy.evidence().empty());
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
  while (p.policy.evidence().empty() && waited < 1min) {
    sent += p.wait();
    waited += report;
  }
  CHECK(sent == 2);
  CHECK(waited >= 2 * p.limits.timeout);
  CHECK(waited <= 2 * p.limits.timeout + 4 * report);
  CHECK_THAT(p.policy.evidence(), Catch::Contains("no answer within 5000 ms"));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(p.wait());  // once is enough
}

TEST_CASE("one lost probe proves nothing") {
  probed p;
  p.until_sent();
  CHECK(p.until_sent() <= p.limits.timeout + 2 * report);  // the second one
  p.policy.answered();
  for (int i = 0; i < 9; ++i) CHECK_FALSE(p.wait());
  CHECK(p.policy.evidence().empty());
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
    REQUIRE(p.policy.evidence().empty());
  }
}

TEST_CASE("time without accounts is not held against the engine") {
  probed p;
  p.until_sent();
  for (int i = 0; i < 3; ++i) {
    p.wait(10min);  // the process stood still, or its link was down
    REQUIRE(p.policy.evidence().empty());
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
  CHECK(p.policy.evidence().empty());
}
