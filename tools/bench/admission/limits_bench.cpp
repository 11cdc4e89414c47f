#include "tests/support/budget_world.hpp"
#include "tools/bench/admission/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace troupe::bench {

namespace {

using admission::budget_world;

constexpr std::size_t gateways = 4;
constexpr double cut_s = 60, lease_s = 5, window_s = 20, before_s = 70, after_s = 70;
/// MU per second, where all of a tenant's traffic arrives: five times its limit.
constexpr double flood = 8;

/// What a gateway would like to spend, in MU per second: `t` seconds after the cut.
using pattern = std::function<double(std::size_t gateway, double t)>;

struct outcome {
  double most = 0;       ///< MU in any 60 s, all gateways
  double reachable = 0;  ///< MU per minute from lease expiry on, the least of 20 s
  double slice = 0,
         slice_used = 0;  ///< MU that the isolated one held; spent before its lease ended
  double alone = 0;       ///< MU per minute after that
};

void drive(budget_world& w, double length, double cut_at, double request, const pattern& p) {
  constexpr double piece = 0.1;
  for (const double until = w.now() + length; w.now() < until - 1e-9;) {
    for (std::size_t g = 0; g < gateways; ++g)
      w.demand(g, p(g, w.now() - cut_at) / request, request);
    w.run(std::min(piece, until - w.now()));
  }
}

/// `after_slice`: it is cut off in the moment in which it holds most.
outcome cut_off(const limits_setup& s, std::size_t off, std::uint64_t seed, const pattern& p,
                bool after_slice) {
  budget_world w{{s.per_minute, s.burst, s.floor_per_minute, 0, gateways}, seed};
  // Somewhere between two words to the owner.
  const double lead = before_s + std::uniform_real_distribution<>{0, 0.5}(w.random());
  drive(w, lead, lead, s.request, p);
  if (after_slice) {
    double most = 0;
    for (int i = 0; i < 400; ++i, w.run(0.005)) most = std::max(most, w.held(off));
    for (int i = 0; i < 1'000 && w.held(off) < 0.9 * most; ++i) w.run(0.005);
  }
  outcome out;
  const double t = w.now();
  out.slice = w.held(off);
  w.isolate(off);
  drive(w, cut_s, t, s.request, p);
  w.heal();
  drive(w, after_s, t, s.request, p);
  const auto of_off = [&](double from, double to) {
    return w.spent_between(t + from, t + to) - w.spent_between(t + from, t + to, off);
  };
  constexpr double own_lease = 3.5;
  out.most = w.worst_window(60);
  out.reachable = std::numeric_limits<double>::infinity();
  for (double from = lease_s; from + window_s <= cut_s; from += 0.5)
    out.reachable = std::min(out.reachable,
                             w.spent_between(t + from, t + from + window_s, off) / window_s * 60);
  out.slice_used = of_off(0, own_lease);
  out.alone = of_off(own_lease, cut_s) / (cut_s - own_lease) * 60;
  return out;
}

}  // namespace

bool bench_limits(const limits_setup& s) {
  fmt::print("limits: {:g} MU/min (burst {:g}, isolated {:g}) over {} gateways, requests of {:g} "
             "MU, each gateway cut off in turn for {:g} s, seeds {} to {}\n{:<44} {:>5} {:>14} "
             "{:>16} {:>12} {:>16}\n",
             s.per_minute, s.burst, s.floor_per_minute, gateways, s.request, cut_s, s.by.first,
             s.by.first + s.by.count - 1, "demand", "runs", "most in 60 s", "reachable, least",
             "last slice", "then alone");
  struct row {
    const char* name;
    std::function<pattern(std::size_t off, std::uint64_t seed)> make;
    bool after_slice = false;
  };
  const auto steady = [](std::size_t, std::uint64_t) -> pattern {
    return [](std::size_t, double) { return flood / gateways; };
  };
  const row rows[] = {
      {"steady, at all gateways", steady},
      {"steady, cut off as it holds most", steady, true},
      {"all at the one cut off, then everywhere",
       [](std::size_t off, std::uint64_t) -> pattern {
         return [off](std::size_t g, double t) { return g == off ? flood : t < 0 ? 0 : flood / 3; };
       },
       true},
      {"all at another; at both during the cut",
       [](std::size_t off, std::uint64_t) -> pattern {
         return [off](std::size_t g, double t) {
           return g == (off + 1) % gateways || (g == off && t >= 0) ? flood : 0;
         };
       }},
      {"bursts of 4 s in 10, each at its own time",
       [](std::size_t, std::uint64_t seed) -> pattern {
         return [seed](std::size_t g, double t) {
           const auto phase = static_cast<double>((seed * 37 + g * 53) % 100) / 10;
           return std::fmod(t + 200 + phase, 10) < 4 ? flood : 0;
         };
       }},
      {"below its limit, then all as it is cut off",
       [limit = s.per_minute / 60](std::size_t off, std::uint64_t) -> pattern {
         return [off, limit](std::size_t g, double t) {
           return t >= 0 ? flood : (g == off ? 0.8 : 0.05) * limit;
         };
       },
       true},
      {"idle for a minute, all at once as it is cut",
       [](std::size_t, std::uint64_t seed) -> pattern {
         return [lead = static_cast<double>(seed % 10) / 10](std::size_t, double t) {
           return t < -60 || t >= -lead ? 2 * flood : 0;
         };
       }},
  };
  bool limit = true, reachable = true, slice = true, alone = true;
  for (const auto& r : rows) {
    outcome least, most;
    std::size_t runs = 0;
    double over_slice = std::numeric_limits<double>::infinity();
    for (std::size_t off = 0; off < gateways; ++off)
      for (std::uint64_t seed = s.by.first; seed < s.by.first + s.by.count; ++seed, ++runs) {
        const auto o = cut_off(s, off, seed, r.make(off, seed), r.after_slice);
        over_slice = std::min(over_slice, o.slice_used - o.slice);
        if (runs == 0) least = most = o;
        for (auto m : {&outcome::most, &outcome::reachable, &outcome::slice, &outcome::alone}) {
          least.*m = std::min(least.*m, o.*m);
          most.*m = std::max(most.*m, o.*m);
        }
      }
    const auto range = [](double a, double b) { return fmt::format("{:.1f}-{:.1f}", a, b); };
    fmt::print("{:<44} {:>5} {:>14} {:>16} {:>12} {:>16}\n", r.name, runs,
               range(least.most, most.most), range(least.reachable, most.reachable),
               range(least.slice, most.slice), range(least.alone, most.alone));
    limit = limit && most.most <= 1.1 * s.per_minute;
    reachable = reachable && least.reachable >= 0.9 * s.per_minute;
    slice = slice && over_slice >= -s.request;
    // A minute's worth less than a request of whole requests, and what is saved up.
    alone = alone && least.alone >= s.floor_per_minute - 2 * s.request &&
            most.alone <= s.floor_per_minute + 2 * s.request;
  }
  const auto all = "each run";
  limit = promised("MU in any sliding 60 s, whole", all, "at most 110 %", limit);
  reachable = promised("reachable side from 5 s after the cut on, in any 20 s", all,
                       "at least 90 % of the limit", reachable);
  slice = promised("the isolated gateway spends its last slice", all, "to less than a request",
                   slice);
  alone = promised("then its floor", all, "within 2 requests a minute", alone);
  return limit && reachable && slice && alone;
}

}  // namespace troupe::bench
