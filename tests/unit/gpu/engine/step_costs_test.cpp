// Sharing a pass's time among its jobs: nothing is lost, whatever was learnt, and what was learnt
// is what the passes cost.

#include "gpu/engine/batching/step_costs.hpp"
#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include <numeric>
#include <random>

using namespace troupe;
using namespace troupe::engine;
using namespace troupe::engine::test;
using namespace std::chrono_literals;

namespace {

/// What a pass takes on an invented machine.
struct machine {
  double step = 8e-3, chunk = 3e-3, token = 2e-3, context = 1e-6, stream = 1e-3, kv = 4e-6;
  std::chrono::nanoseconds time(const std::vector<step_part>& parts) const {
    double s = 0;
    bool decodes = false;
    for (const auto& p : parts) {
      decodes = decodes || p.decode;
      s += p.decode ? stream + kv * (p.from + 1.0) : token * p.tokens + context * context_of(p);
    }
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(1e9 * (s + (decodes ? step : chunk))));
  }
};

std::vector<step_part> any_pass(std::mt19937& random) {
  std::vector<step_part> parts;
  for (auto n = random() % 9; n > 0; --n)
    parts.push_back({static_cast<position>(random() % 3'000), 1, true});
  for (auto n = random() % 3 + (parts.empty() ? 1 : 0); n > 0; --n)
    parts.push_back({static_cast<position>(random() % 2'000),
                     static_cast<position>(1 + random() % 512), false});
  return parts;
}

double seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

}  // namespace

TEST_CASE("step costs: the shares are the pass, before and after anything was learnt") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  step_costs costs;
  const machine m;
  for (int i = 0; i < 500; ++i) {
    const auto parts = any_pass(random);
    // Also times that have nothing to do with what was learnt.
    const auto took = i % 7 == 0 ? std::chrono::nanoseconds(random() % 1'000'000'000)
                                 : m.time(parts);
    const auto shares = costs.divide(parts, took);
    REQUIRE(shares.size() == parts.size());
    CHECK(std::accumulate(shares.begin(), shares.end(), 0ns) == took);
    CHECK(std::all_of(shares.begin(), shares.end(), [](auto s) { return s >= 0ns; }));
    costs.learn(parts, took);
  }
  CHECK(costs.divide({}, 5ms).empty());
}

TEST_CASE("step costs: a mixed pass is shared as its parts cost apart") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  step_costs costs;
  const machine m;
  for (int i = 0; i < 400; ++i) {
    const auto parts = any_pass(random);
    costs.learn(parts, m.time(parts));
  }
  const std::vector<step_part> mixed{{999, 1, true}, {1'999, 1, true}, {100, 200, false}};
  const auto shares = costs.divide(mixed, m.time(mixed));
  CHECK(seconds(shares[0]) == Approx(m.step / 2 + m.stream + m.kv * 1'000).epsilon(0.01));
  CHECK(seconds(shares[1]) == Approx(m.step / 2 + m.stream + m.kv * 2'000).epsilon(0.01));
  CHECK(seconds(shares[2]) ==
        Approx(m.token * 200 + m.context * context_of(mixed[2])).epsilon(0.01));
}

TEST_CASE("step costs: where only single streams were seen, equal streams share equally") {
  step_costs costs;
  for (int i = 0; i < 100; ++i) costs.learn(std::vector<step_part>{{100, 1, true}}, 10ms);
  const auto shares = costs.divide(std::vector<step_part>{{100, 1, true}, {100, 1, true}}, 12ms);
  CHECK(shares[0] == 6ms);
  CHECK(shares[1] == 6ms);
}

TEST_CASE("step costs: passes that take no time are shared, too") {
  step_costs costs;
  for (int i = 0; i < 100; ++i) costs.learn(std::vector<step_part>{{0, 100, false}}, 10ms);
  // Nothing is known of decodes.
  const auto shares = costs.divide(std::vector<step_part>{{7, 1, true}, {9, 1, true}}, 8ms);
  CHECK(shares[0] + shares[1] == 8ms);
  CHECK(shares[0] == shares[1]);
}

// -- in the engine ----------------------------------------------------------------------

namespace {

/// Time that passes only when the simulated model computes.
struct fake_time {
  std::chrono::steady_clock::time_point now{};
  simulated_options model() {
    simulated_options o;
    o.prefill_tokens_per_second = 1'000;
    o.decode_step_us = 10'000;
    o.decode_us_per_stream = 1'000;
    o.now = [this] { return now; };
    o.sleep = [this](std::chrono::nanoseconds t) { now += t; };
    return o;
  }
  engine_options options() {
    engine_options o;
    o.now = [this] { return now; };
    return o;
  }
};

}  // namespace

TEST_CASE("engine: a job alone costs all the time that was spent, and says what it got for it") {
  fake_time time;
  rig r({}, time.model(), time.options());
  REQUIRE(r.machine->submit(generate(1, prompt_of(301), 5)));
  r.run();
  REQUIRE(r.events.costs.contains(1));
  const auto& c = r.events.costs.at(1);
  CHECK(c.prefill == 300ms);
  CHECK(c.decode == 5 * 11ms);
  CHECK(c.transfer == 0ns);
  CHECK(c.computed == 300);
  CHECK(c.computed_context == 300 * 299 / 2.0);
  CHECK(c.sampled == 5);
  CHECK(c.step_shares == 5);
  CHECK(c.sampled_context == 301 + 302 + 303 + 304 + 305);
  // The last token brings the account along.
  REQUIRE(r.events.last_costs.contains(1));
  CHECK(r.events.last_costs.at(1).decode == c.decode);
}

TEST_CASE("engine: what all jobs cost is what the engine was busy, however they end") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  fake_time time;
  batching_limits limits;
  limits.slots = 6;
  limits.kv_tokens = 2'000;  // short: jobs are pre-empted, and compute again
  limits.step_tokens = 128;
  rig r(limits, time.model(), time.options());
  const auto begun = time.now;
  for (job_id id = 1; id <= 40; ++id) {
    auto spec = generate(id, prompt_of(1 + random() % 400, static_cast<unsigned>(id)),
                         1 + random() % 60);
    spec.choices = random() % 5 == 0 ? 3 : 1;
    REQUIRE(r.machine->submit(spec));
    for (auto n = random() % 6; n > 0; --n) r.step();
    if (random() % 4 == 0) r.machine->cancel(1 + random() % id);
  }
  r.run();
  std::chrono::nanoseconds sum{0};
  for (const auto& [id, c] : r.events.costs) {
    sum += c.prefill + c.decode + c.transfer;
    CHECK(c.step_shares <= c.sampled);
  }
  CHECK(sum == time.now - begun);
  CHECK(r.events.last_costs.size() == r.events.done.size());
  for (const auto& [id, c] : r.events.last_costs) CHECK(c.sampled == r.events.costs.at(id).sampled);
}

TEST_CASE("engine: streams of one batch share its fixed part equally") {
  fake_time time;
  rig r({}, time.model(), time.options());
  // First alone, so that the engine knows what is what.
  REQUIRE(r.machine->submit(generate(1, prompt_of(64), 40)));
  r.run();
  for (job_id id = 2; id <= 5; ++id)
    REQUIRE(r.machine->submit(generate(id, prompt_of(2, static_cast<unsigned>(id)), 20)));
  r.run();
  for (job_id id = 2; id <= 5; ++id) {
    CHECK(r.events.costs.at(id).step_shares == Approx(20 / 4.0).margin(1));
    CHECK(seconds(r.events.costs.at(id).decode) == Approx(20 * (10e-3 / 4 + 1e-3)).epsilon(0.1));
  }
}

TEST_CASE("engine: cancelled work has its price, and so has work that was never computed") {
  fake_time time;
  rig r({}, time.model(), time.options());
  REQUIRE(r.machine->submit(generate(1, prompt_of(301), 50)));
  for (int i = 0; i < 4; ++i) r.step();
  r.machine->cancel(1);
  r.run();
  REQUIRE(r.events.costs.contains(1));
  CHECK(r.events.costs.at(1).prefill + r.events.costs.at(1).decode ==
        time.now - std::chrono::steady_clock::time_point{});
  REQUIRE(r.machine->submit(generate(2, prompt_of(50), 5)));
  r.machine->cancel(2);
  r.run();
  CHECK_FALSE(r.events.costs.contains(2));
}

TEST_CASE("engine: prefill and decode apart, each its own share") {
  fake_time time;
  rig p({}, time.model(), time.options());
  fake_time other;
  rig d({}, other.model(), other.options());
  auto spec = generate(7, prompt_of(501), 10);
  spec.prefill_here = false;
  REQUIRE(p.machine->submit(prefill(7, prompt_of(501))));
  REQUIRE(d.machine->submit(spec));
  hand_over(p, d, 7);
  REQUIRE(p.events.costs.contains(7));
  CHECK(p.events.costs.at(7).prefill == 500ms);
  CHECK(p.events.costs.at(7).sampled == 0);
  REQUIRE(d.events.costs.contains(7));
  CHECK(d.events.costs.at(7).decode == 10 * 11ms);
  CHECK(d.events.costs.at(7).computed == 0);
}

TEST_CASE("engine: a stream that leaves is accounted for at both of its ends") {
  fake_time time;
  rig r({}, time.model(), time.options());
  REQUIRE(r.machine->submit(generate(1, prompt_of(101), 50)));
  for (int i = 0; i < 10; ++i) r.step();
  r.machine->leave(1);
  r.step();
  REQUIRE(r.events.leaving.contains(1));
  REQUIRE(r.events.costs.contains(1));
  const auto before = r.events.costs.at(1);
  CHECK(before.prefill + before.decode == time.now - std::chrono::steady_clock::time_point{});
  CHECK(before.sampled == r.events.leaving.at(1).second);
}

TEST_CASE("engine: a probe costs nobody anything") {
  fake_time time;
  batching_limits limits;
  limits.probe_cells = 16;
  rig r(limits, time.model(), time.options());
  auto spec = generate(9, prompt_of(4), 1);
  spec.probe = true;
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.done.contains(9));
  CHECK(r.events.costs.empty());
  CHECK(r.events.last_costs.empty());
}
