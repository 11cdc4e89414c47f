// Ten minutes of five times the load that an engine can bear, in simulated time: the real engine
// over the simulated model, looked at each second as its node does. Whoever makes progress is never
// killed, and load delays no probe.

#include "actors/health/job_watch.hpp"
#include "actors/health/probe_policy.hpp"
#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <deque>
#include <random>

using namespace troupe;
using namespace troupe::engine;
using namespace troupe::engine::test;
using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;

namespace {

constexpr auto span = 10min;
constexpr auto report = 1s;
constexpr auto patience = 2min;  // of a client
constexpr double overload = 5;
constexpr std::size_t prompt_tokens_max = 131'072;

struct kind {
  const char* name;
  double prefill_tokens_per_second;
  std::uint32_t step_tokens;
  bool ticks;  ///< shows progress inside its steps, as llama.cpp does
};

struct client {
  job_id job;
  time_point leaves;
};

struct world {
  kind what;
  std::mt19937 random;
  time_point now{1h};
  time_point next_report = now + report;
  recorder events;
  std::unique_ptr<troupe::engine::engine> machine;
  health::progress_watch watch;
  health::probe_policy probing;
  std::deque<client> clients;
  double owed_tokens = 0;
  job_id next_job = 1;
  double asked_tokens = 0;
  std::vector<std::string> kills;
  double most_turns_missed = 0;
  // A probe that is sent though nobody would: how long it takes.
  job_id probe_job = 0;
  time_point probe_sent;
  std::chrono::nanoseconds longest_probe{0};
  int probes = 0;

  world(kind k, std::uint32_t seed) : what(k), random(seed) {
    simulated_options how;
    how.slots = 40;
    how.cells = 200'000 + probe_cells_needed;
    how.context_tokens = prompt_tokens_max + 2'048;
    how.prefill_tokens_per_second = what.prefill_tokens_per_second;
    how.decode_step_us = 20'000;
    how.decode_us_per_stream = 1'000;
    how.end_tokens = {258, 259};
    how.now = [this] { return now; };
    how.sleep = [this](std::chrono::nanoseconds time) { pass(time); };
    batching_limits limits;
    limits.slots = 16;
    limits.kv_tokens = 200'000;
    limits.step_tokens = what.step_tokens;
    limits.cached_prefixes = 8;
    limits.probe_cells = probe_cells_needed;
    engine_options options;
    options.now = how.now;
    machine = make_batching_engine(std::make_unique<simulated_runner>(how),
                                   text::make_byte_text_model(how.context_tokens), limits, options);
  }

  void pass(std::chrono::nanoseconds time) {
    now += time;
    while (now >= next_report) {
      look();
      next_report += report;
    }
  }

  /// What the node does each second; in the middle of a step, as it comes.
  void look() {
    come_and_go();
    const auto g = machine->gauges();
    health::engine_account is;
    is.steps = g.steps;
    is.ticks = what.ticks ? g.ticks : g.steps;
    is.tokens = g.prefilled + g.sampled;
    is.busy = std::chrono::microseconds{g.busy_us};
    is.stepping = g.stepping;
    is.at_hand = g.at_hand;
    is.jobs = g.running + g.queued;
    if (const auto j = watch.judge(is, next_report); j.what == health::verdict::hung)
      kills.push_back(j.evidence);
    if (auto stall = health::stall_of({g.passed_over.turns, g.passed_over.still}, {}))
      kills.push_back(*std::move(stall));
    most_turns_missed = std::max(most_turns_missed, g.passed_over.turns);
    (void)probing.due(is, next_report);
    if (const auto j = probing.judge(); j.what != health::verdict::healthy)
      kills.push_back(j.evidence);
    if (probe_job == 0 && random() % 5 == 0) {
      auto spec = generate(next_job, prompt_of(2), 1);
      spec.probe = true;
      if (!machine->submit(std::move(spec))) return;
      probe_job = next_job++;
      probe_sent = now;
    }
  }

  void come_and_go() {
    owed_tokens += overload * what.prefill_tokens_per_second;
    while (owed_tokens > 0) {
      // Most prompts are short, most tokens are in long ones.
      const auto size = static_cast<std::size_t>(std::exp(std::uniform_real_distribution{
          std::log(50.0), std::log(double{prompt_tokens_max})}(random)));
      owed_tokens -= static_cast<double>(size);
      auto spec = generate(next_job, prompt_of(size, static_cast<unsigned>(random())), 200);
      asked_tokens += static_cast<double>(size);
      if (machine->submit(std::move(spec))) clients.push_back({next_job++, now + patience});
    }
    for (; !clients.empty() && clients.front().leaves <= now; clients.pop_front())
      machine->cancel(clients.front().job);
  }

  void run() {
    const auto end = now + span;
    while (now < end) {
      if (!machine->step(events).worked) pass(10ms);
      if (probe_job != 0 && events.done.contains(probe_job)) {
        longest_probe = std::max<std::chrono::nanoseconds>(longest_probe, now - probe_sent);
        ++probes;
        probe_job = 0;
      }
    }
  }
};

}  // namespace

TEST_CASE(
    "ten minutes of five times the load, with prompts up to 128k tokens: no engine that makes "
    "progress is killed, no job taken for forgotten, and no probe waits for more than the pass "
    "under way") {
  const auto k = GENERATE(kind{"ticking", 4'000, 512, true}, kind{"silent", 4'000, 512, false},
                          kind{"silent, with steps of ten seconds", 200, 2'048, false});
  const auto seed = std::random_device{}();
  INFO(k.name << ", seed " << seed);
  world w{k, seed};
  w.run();
  CHECK(w.kills == std::vector<std::string>{});
  CHECK(w.most_turns_missed <= 2);
  // It was an overload, and it worked all the time.
  const auto computed = static_cast<double>(w.machine->gauges().prefilled);
  CHECK(computed > 0.5 * k.prefill_tokens_per_second * std::chrono::duration<double>(span).count());
  CHECK(w.asked_tokens > 0.8 * overload * computed);
  CHECK(w.events.cancelled.size() > 0);
  const auto one_pass = std::chrono::duration<double>(k.step_tokens / k.prefill_tokens_per_second +
                                                      0.1);
  CHECK(w.probes > 10);
  CHECK(std::chrono::duration<double>(w.longest_probe).count() <= one_pass.count() + 0.5);
}
