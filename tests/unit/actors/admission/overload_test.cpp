// What overload costs those who are let in: gates before engines with a time model, all in
// simulated time. A bar on real processes does the same (tools/bench/load_bars.py, `overload`).

#include "actors/admission/budget_owner.hpp"
#include "actors/admission/gate.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace troupe::admission;

namespace {

// How it can fail: a queue that is full all the time, so that whoever is let in waits as long as he
// may; or one that is so short that engines have nothing to do.

const time_point t0{std::chrono::hours{1}};
time_point at(double s) {
  return t0 + std::chrono::duration_cast<time_point::duration>(seconds{s});
}

/// In proportions of a GPU: steps of some 30 ms, which take up prompts beside what they decode.
struct engine_times {
  std::uint32_t slots = 32;
  std::uint64_t step_tokens = 512;
  double step_s = 0.020;
  double stream_s = 0.000'25;
  double prefill_tokens_per_s = 8'000;
};

struct request {
  std::uint64_t id = 0;
  std::size_t gateway = 0;
  double arrived = 0;
  std::uint64_t prompt = 0;  ///< tokens that are not computed yet
  std::uint64_t answer = 0;  ///< tokens that are not sampled yet
  std::uint64_t answer_whole = 0;
  double mu = 0;
  std::uint64_t prompt_whole = 0;
};

/// Chunked prefill, first come first served, beside one token for each stream.
class engine {
 public:
  explicit engine(engine_times t) : t_(t) {}
  void take(request r) { prompts_.push_back(r); }
  std::size_t used() const { return prompts_.size() + streams_.size(); }
  /// Seconds, as a router would weigh it: prompts ahead, streams beside it, and a slot that lacks.
  double pressure() const {
    double tokens = 0;
    for (const auto& r : prompts_) tokens += static_cast<double>(r.prompt);
    const auto streams = static_cast<double>(used());
    return tokens / t_.prefill_tokens_per_s + streams * t_.stream_s +
           (used() >= t_.slots ? t_.step_s * 100 : 0);
  }
  /// Calls `first` and `done` for what a step that has ended by now has brought.
  template <class First, class Done>
  void advance(double now, First first, Done done) {
    while (in_step_ && step_end_ <= now) end_step(step_end_, first, done);
    if (!in_step_) begin_step(now);
  }

 private:
  void begin_step(double now) {
    if (used() == 0) return;
    const auto decoding = static_cast<double>(streams_.size());
    auto budget = t_.step_tokens - std::min<std::uint64_t>(t_.step_tokens, streams_.size());
    std::uint64_t chunk = 0;
    for (auto& r : prompts_) {
      if (streams_.size() + 1 > t_.slots || budget == 0) break;
      const auto part = std::min(budget, r.prompt);
      r.prompt -= part;
      budget -= part;
      chunk += part;
    }
    const bool samples = decoding > 0 || prompts_.front().prompt == 0;
    step_end_ = now + (samples ? t_.step_s + t_.stream_s * decoding : 0) +
                static_cast<double>(chunk) / t_.prefill_tokens_per_s;
    decoding_ = streams_.size();
    in_step_ = true;
  }
  template <class First, class Done>
  void end_step(double now, First first, Done done) {
    in_step_ = false;
    for (std::size_t i = 0; i < decoding_; ++i) --streams_[i].answer;
    while (!prompts_.empty() && prompts_.front().prompt == 0) {
      auto r = prompts_.front();
      prompts_.pop_front();
      --r.answer;
      first(r, now);
      streams_.push_back(r);
    }
    for (auto i = streams_.begin(); i != streams_.end();) {
      if (i->answer > 0) {
        ++i;
        continue;
      }
      done(*i, now);
      i = streams_.erase(i);
    }
    begin_step(now);
  }

  engine_times t_;
  std::deque<request> prompts_;
  std::vector<request> streams_;
  std::size_t decoding_ = 0;
  bool in_step_ = false;
  double step_end_ = 0;
};

struct measured {
  double tokens_per_s = 0;
  double requests_per_s = 0;
  std::vector<double> ttft_s;
  std::vector<double> waits_s;
  std::size_t refused = 0;
  std::size_t in_window = 0;

  static double p95(std::vector<double> v) {
    if (v.empty()) return 0;
    std::sort(v.begin(), v.end());
    return v[v.size() * 95 / 100];
  }
};

/// Some engines behind some gateways, each with a gate; a report of each engine a second.
struct fleet {
  engine_times times;
  std::size_t engines = 4;
  std::size_t gateways = 2;
  std::vector<tenant_limits> tenants;  ///< none: no gates
  std::uint64_t seed = 1;
  static constexpr double warm_s = 10, tick_s = 0.001, message_s = 0.001;

  double seconds_of(std::uint64_t prompt, std::uint64_t answer) const {
    const auto slots = static_cast<double>(times.slots);
    return static_cast<double>(prompt) / times.prefill_tokens_per_s +
           static_cast<double>(answer) * (times.step_s / slots + times.stream_s);
  }

  /// `rate`: requests a second, at random; or a closed loop of so many `clients`.
  measured run(double rate, std::size_t clients, double duration) const {
    std::mt19937_64 draw{seed};
    const auto unit = [&] { return static_cast<double>(draw() >> 11U) * 0x1p-53; };
    std::vector<engine> all(engines, engine{times});
    std::vector<gate> gates;
    std::vector<std::string> names;
    for (std::size_t g = 0; g < gateways; ++g) names.push_back("g" + std::to_string(g));
    for (const auto& name : names) gates.emplace_back(tenants, name, names, 1, t0);
    measured out;
    std::uint64_t next_id = 1;
    double next = 0;
    std::map<std::uint64_t, request> waiting;
    std::multimap<double, request> to_engines;
    std::multimap<double, std::pair<request, bool>> to_gates;  // true: its first token
    std::vector<double> clients_at(clients, 0);
    const auto end = warm_s + duration;
    const auto counts = [&](double t) { return t >= warm_s && t < end; };
    const auto begin = [&](const request& r, double t) {
      if (counts(r.arrived)) out.waits_s.push_back(t - r.arrived);
      to_engines.emplace(t + message_s, r);
    };
    const auto pump = [&](std::size_t g, double t) {
      for (const auto& v : gates[g].pump("m", at(t))) {
        const auto r = waiting.at(v.id);
        waiting.erase(v.id);
        if (!v.why)
          begin(r, t);
        else if (counts(r.arrived))
          ++out.refused;
      }
    };
    const auto arrive = [&](double t) {
      request r;
      r.id = next_id++;
      r.gateway = draw() % gateways;
      r.arrived = t;
      r.prompt_whole = r.prompt = 200 + draw() % 1'600;
      r.answer_whole = r.answer = 32 + draw() % 65;
      r.mu = seconds_of(r.prompt, r.answer) / seconds_of(3'500, 300);
      if (counts(t)) ++out.in_window;
      if (tenants.empty()) return begin(r, t);
      refusal why;
      const auto& who = tenants[draw() % tenants.size()];
      if (!gates[r.gateway].arrive({r.id, who.tenant, "m", r.mu, r.prompt, at(t + 600)}, at(t),
                                   why)) {
        if (counts(t)) ++out.refused;
        return;
      }
      waiting[r.id] = r;
      pump(r.gateway, t);
    };
    const auto report = [&] {
      std::uint32_t used = 0;
      for (const auto& e : all) used += static_cast<std::uint32_t>(e.used());
      const auto n = static_cast<std::uint32_t>(engines);
      for (auto& g : gates)
        g.supply("m",
                 {n * times.slots, used, n * times.step_tokens * 5 / 2,
                  static_cast<std::uint32_t>(gateways), n},
                 static_cast<double>(engines) / seconds_of(3'500, 300));
    };
    double next_report = 0;
    for (double t = 0; t < end; t += tick_s) {
      if (t >= next_report) {
        report();
        next_report += 1;
      }
      while (rate > 0 && next <= t) {
        arrive(t);
        next += -std::log(1 - unit()) / rate;
      }
      for (auto& c : clients_at)
        if (c <= t) {
          c = 1e9;
          arrive(t);
        }
      while (!to_engines.empty() && to_engines.begin()->first <= t) {
        auto& best = *std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
          return a.pressure() < b.pressure();
        });
        best.take(to_engines.begin()->second);
        to_engines.erase(to_engines.begin());
      }
      for (auto& e : all)
        e.advance(
            t,
            [&](const request& r, double when) {
              if (counts(r.arrived)) out.ttft_s.push_back(when + message_s - r.arrived);
              to_gates.emplace(when + message_s, std::pair{r, true});
            },
            [&](const request& r, double when) {
              if (counts(when)) {
                out.tokens_per_s += static_cast<double>(r.answer_whole) / duration;
                out.requests_per_s += 1 / duration;
              }
              to_gates.emplace(when + message_s, std::pair{r, false});
              if (clients > 0)
                *std::find(clients_at.begin(), clients_at.end(), 1e9) = when + 2 * message_s;
            });
      while (!to_gates.empty() && to_gates.begin()->first <= t) {
        const auto [r, first] = to_gates.begin()->second;
        to_gates.erase(to_gates.begin());
        if (tenants.empty()) continue;
        if (first)
          gates[r.gateway].prefilled(r.id);
        else
          gates[r.gateway].ended(r.id, r.mu, at(t));
        pump(r.gateway, t);
      }
      if (!tenants.empty() && static_cast<std::uint64_t>(t / tick_s) % 20 == 0)
        for (std::size_t g = 0; g < gateways; ++g) pump(g, t);
    }
    return out;
  }
};

tenant_limits by_default(std::string name) {
  tenant_limits l;
  l.tenant = std::move(name);
  l.model = "m";
  l.best_effort_weight = 1;
  l.wait_max = milliseconds{2'000};
  return l;
}

}  // namespace

TEST_CASE("overload 5x: capacity is used, and who is let in has his first token as soon as at 70 %",
          "[admission]") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    fleet f;
    f.seed = seed;
    const auto full = f.run(0, f.engines * f.times.slots, 40);
    f.tenants = {by_default("a"), by_default("b")};
    const auto light = f.run(0.1 * full.requests_per_s, 0, 60);
    const auto usual = f.run(0.7 * full.requests_per_s, 0, 60);
    const auto over = f.run(5 * full.requests_per_s, 0, 60);
    const auto ratio = measured::p95(over.ttft_s) / measured::p95(usual.ttft_s);
    std::printf("overload 5x, seed %zu: %.1f %% of %.0f tokens/s; p95 TTFT %.0f ms (wait %.0f), at "
                "70 %% %.0f ms (wait %.0f, %zu of %zu refused), at 10 %% %.0f ms; ratio %.2f\n",
                static_cast<std::size_t>(seed), 100 * over.tokens_per_s / full.tokens_per_s,
                full.tokens_per_s, 1e3 * measured::p95(over.ttft_s),
                1e3 * measured::p95(over.waits_s), 1e3 * measured::p95(usual.ttft_s),
                1e3 * measured::p95(usual.waits_s), usual.refused, usual.in_window,
                1e3 * measured::p95(light.ttft_s), ratio);
    CHECK(over.tokens_per_s >= 0.95 * full.tokens_per_s);
    CHECK(ratio <= 1.2);
  }
}

namespace {

/// One gate before some places, each of which takes a second for a request of 1 MU and has its
/// first token after half of it.
struct stage {
  explicit stage(std::vector<tenant_limits> l, std::uint32_t slots)
      : g(l, "g", {"g"}, 1, t0), owner(owner_of(l)) {
    g.supply("m", {slots, 0, 1'000'000, 1}, slots);
  }
  /// Until `end`; `ask(t)` names who asks at that moment.
  template <class Ask>
  void run(double end, Ask ask) {
    for (; now < end; now += 0.01) {
      talk();
      for (auto i = first.begin(); i != first.end() && i->first <= now; i = first.erase(i))
        g.prefilled(i->second);
      for (auto i = last.begin(); i != last.end() && i->first <= now; i = last.erase(i))
        g.ended(i->second, 1, at(now));
      for (const auto& who : ask(now)) {
        refusal why;
        const auto id = ++asked;
        if (g.arrive({id, who, "m", 1, 100, at(now + 600)}, at(now), why))
          waiting[id] = {who, now};
        else
          refused[who].push_back(why);
      }
      for (const auto& v : g.pump(at(now))) {
        REQUIRE(waiting.count(v.id) == 1);  // each is told once
        const auto [who, since] = waiting.at(v.id);
        waiting.erase(v.id);
        if (v.why) {
          refused[who].push_back(*v.why);
          continue;
        }
        waits[who].push_back(now - since);
        first.emplace(now + 0.5, v.id);
        last.emplace(now + 1, v.id);
      }
    }
  }
  double longest(const std::string& who, std::size_t from = 0) {
    auto& w = waits[who];
    return w.size() <= from ? 0 : *std::max_element(w.begin() + static_cast<long>(from), w.end());
  }

  gate g;
  std::optional<std::pair<std::string, budget_owner>> owner;  ///< of the one that has a budget
  double now = 0;
  std::uint64_t asked = 0;
  std::multimap<double, std::uint64_t> first, last;
  std::map<std::uint64_t, std::pair<std::string, double>> waiting;
  std::map<std::string, std::vector<double>> waits;
  std::map<std::string, std::vector<refusal>> refused;

 private:
  static std::optional<std::pair<std::string, budget_owner>> owner_of(
      const std::vector<tenant_limits>& all) {
    for (const auto& l : all)
      if (l.guaranteed_per_minute > 0)
        return std::pair{
            budget_name(l.tenant, l.model),
            budget_owner{
                {l.guaranteed_per_minute, l.burst, l.floor_per_minute, 0, 1}, {"g"}, 1, t0}};
    return std::nullopt;
  }
  void talk() {
    if (!owner) return;
    for (const auto& w : g.words(at(now)))
      g.answered(w.budget, "g", owner->second.answer("g", w.word, at(now)), at(now));
  }
};

using names = std::vector<std::string>;

/// True each `every` seconds, by ticks.
bool due(double t, double every) {
  const auto tick = std::llround(t * 100), period = std::llround(every * 100);
  return tick % period == 0;
}

}  // namespace

TEST_CASE("in a lasting overload the latest request waits, and one of each tenant", "[admission]") {
  stage s{{by_default("flood"), by_default("other")}, 4};
  // 20 and 1.7 MU/s, of which 4 can be done.
  s.run(60, [](double t) {
    names who;
    if (due(t, 0.05)) who.emplace_back("flood");
    if (due(t, 0.6)) who.emplace_back("other");
    return who;
  });
  CHECK(s.g.waiting() <= 2);
  CHECK(s.g.waiting() == s.waiting.size());
  // All places are used.
  CHECK(s.waits["flood"].size() + s.waits["other"].size() >= 0.95 * 60 * 4);
  // By the queue of wait_max it would be 2 s.
  CHECK(s.longest("flood", s.waits["flood"].size() / 2) <= 0.15);
  // Who asks for less than an equal part gets it, whatever the other one does.
  CHECK(s.waits["other"].size() >= 0.95 * 60 / 0.6);
  for (const auto& why : s.refused["flood"]) {
    CHECK(why.http_status == 429);
    CHECK(why.retry_after.count() > 0);
  }
  s.run(65, [](double) { return names{}; });
  CHECK(s.g.waiting() == 0);
  CHECK(s.g.open() == 0);
  CHECK(s.g.reserved_mu() == Approx(0).margin(1e-9));
}

TEST_CASE("what comes at once waits for as long as wait_max says, where it is not too much in all",
          "[admission]") {
  struct bunches {
    std::size_t of;
    double every, until, longest;
  };
  // 2 and 3.4 of 4 MU/s.
  const auto b = GENERATE(bunches{10, 5, 60, 1.5}, bunches{8, 2.35, 120, 0.8});
  stage s{{by_default("a")}, 4};
  s.run(b.until, [&](double t) { return due(t, b.every) ? names(b.of, "a") : names{}; });
  CHECK(s.refused["a"].empty());
  CHECK(s.longest("a") > b.longest);
}

TEST_CASE("guaranteed requests wait as ever while others ask for too much", "[admission]") {
  auto paid = by_default("paid");
  paid.guaranteed_per_minute = 120;
  paid.burst = 20;
  paid.best_effort_weight = 0;
  stage s{{paid, by_default("flood")}, 4};
  // Eight at once each 10 s.
  s.run(60, [](double t) {
    names who = due(t, 0.05) ? names{"flood"} : names{};
    if (t > 20 && due(t, 10)) who.insert(who.end(), 8, "paid");
    return who;
  });
  CHECK(s.refused["paid"].empty());
  CHECK(s.waits["paid"].size() >= 24);
}

TEST_CASE("who would rather wait, waits", "[admission]") {
  auto batch = by_default("batch");
  batch.wait_max = milliseconds{15'000};
  stage s{{batch}, 4};
  s.run(60, [](double t) { return due(t, 0.05) ? names{"batch"} : names{}; });
  CHECK(s.g.waiting() >= 50);
  CHECK(s.longest("batch", s.waits["batch"].size() / 2) > 12);
}

TEST_CASE("who waits for a budget of its own waits as ever", "[admission]") {
  auto paid = by_default("paid");
  paid.guaranteed_per_minute = 60;
  paid.burst = 1;
  paid.best_effort_weight = 0;
  stage s{{paid}, 4};
  s.run(60, [](double t) { return due(t, 0.8) ? names{"paid"} : names{}; });
  REQUIRE_FALSE(s.refused["paid"].empty());
  for (const auto& why : s.refused["paid"]) CHECK(std::string{why.reason} == "tenant_limit");
  CHECK(s.longest("paid") > 1);
  CHECK(s.waits["paid"].size() >= 57);
}
