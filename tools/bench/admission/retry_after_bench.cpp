#include "tests/support/overload_world.hpp"
#include "tools/bench/admission/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace troupe::bench {

namespace {

using request::overload_world;
using refused = overload_world::refused;

constexpr double bar = 0.9;

overload_world::client client_of(std::string name, double guaranteed_per_minute, double weight,
                                 std::chrono::milliseconds wait_max) {
  overload_world::client c;
  auto& l = c.limits;
  l.tenant = std::move(name);
  l.model = "m";
  l.guaranteed_per_minute = guaranteed_per_minute;
  l.burst = guaranteed_per_minute / 20;
  l.floor_per_minute = guaranteed_per_minute / 20;
  l.best_effort_weight = weight;
  l.wait_max = wait_max;
  return c;
}

/// Tenants that are refused for each of the reasons there are, at once.
overload_world::options mixed(const retry_setup& s, double load, std::uint64_t seed) {
  using std::chrono::milliseconds;
  overload_world::options o;
  o.load = load;
  o.seed = seed;
  o.gateways = s.gateways;
  o.measured_s = s.measured_s;
  o.engines.engines = s.engines;
  o.requests_max = static_cast<std::uint32_t>(40 * s.engines / s.gateways);
  const auto all = request::overload_engines{o.engines}.capacity(o.lengths, 1,
                                                                 std::mt19937_64{seed});
  const double per_minute = all.mu * 60;
  constexpr milliseconds usual{2'000}, patient{600'000};
  auto paid = client_of("paid", 0.25 * per_minute, 0, usual);
  auto some = client_of("some", 0.1 * per_minute, 1, usual);
  auto dear = client_of("dear", 0, 2, usual);
  dear.size = 2;
  auto cheap = client_of("cheap", 0, 1, usual);
  cheap.size = 0.3;
  auto hasty = client_of("hasty", 0, 1, usual);
  hasty.timeout = milliseconds{1'000};
  auto capped = client_of("capped", 0, 1, usual);
  capped.limits.open_max = s.engines;
  auto deep = client_of("deep", 0, 1, patient);
  deep.timeout = patient;
  paid.share = 2;
  o.clients = {paid, some, dear, cheap, hasty, capped, deep};
  return o;
}

/// So much waits, of dear requests, that model units are what there is no more room for.
overload_world::options full(const retry_setup& s, double load, std::uint64_t seed) {
  auto o = mixed(s, load, seed);
  o.requests_max = 16'384;
  o.clients.clear();
  for (const auto* name : {"a", "b"}) {
    auto c = client_of(name, 0, 1, std::chrono::hours{1});
    c.size = 10;
    c.timeout = std::chrono::hours{1};
    o.clients.push_back(c);
  }
  o.warm_s = 10'000 / (client_of("", 0, 0, {}).size * 10);
  return o;
}

std::string reason(const refused& r) {
  return r.code + (r.by_deadline ? ", by its deadline" : "") + (r.waited ? ", after a wait" : "");
}

double part(std::size_t n, std::size_t of) {
  return of == 0 ? 0 : static_cast<double>(n) / static_cast<double>(of);
}

void print_row(const std::string& name, const std::vector<refused>& all) {
  std::vector<double> truths;
  std::size_t right = 0, exact = 0, early = 0, late = 0;
  for (const auto& r : all) {
    truths.push_back(r.truth_s);
    right += r.header_right() ? 1 : 0;
    exact += r.exact_right() ? 1 : 0;
    early += !r.header_right() && r.header_s < r.truth_s ? 1 : 0;
    late += !r.header_right() && r.header_s > r.truth_s ? 1 : 0;
  }
  std::sort(truths.begin(), truths.end());
  const auto at = [&](double q) {
    return truths[static_cast<std::size_t>(q * static_cast<double>(truths.size() - 1))];
  };
  fmt::print("  {:<38} {:>7} {:>8.1f} {:>7.1f} {:>7.1f} {:>9.1f} {:>9.2f} {:>8.2f} {:>8.2f}\n",
             name, all.size(), 100 * part(right, all.size()), 100 * part(early, all.size()),
             100 * part(late, all.size()), 100 * part(exact, all.size()), at(0.5), at(0.9),
             at(0.99));
}

}  // namespace

bool bench_retry_after(const retry_setup& s) {
  fmt::print("retry-after: heavy-tailed requests, {} gateway(s), {:g} s of each run, seeds {} to "
             "{}; t: until a shadow of the same cost would be let in\n",
             s.gateways, s.measured_s, s.by.first, s.by.first + s.by.count - 1);
  struct row {
    const char* name;
    overload_world::options (*make)(const retry_setup&, double, std::uint64_t);
    double load;
    bool promised;
  };
  bool holds = true;
  for (const auto& r : {row{"tenants of all kinds, 2x", mixed, 2, true},
                        row{"tenants of all kinds, 5x", mixed, 5, true},
                        // Shown, without a bar: room in a queue that has no time limit comes by
                        // chance, with the next dear request that happens to begin.
                        row{"queues full of dear requests, 5x", full, 5, false}}) {
    std::map<std::string, std::vector<refused>> by_reason;
    std::vector<refused> all;
    double used = 0;
    for (std::uint64_t seed = s.by.first; seed < s.by.first + s.by.count; ++seed) {
      overload_world w{r.make(s, r.load, seed)};
      w.run();
      used += w.used() / static_cast<double>(s.by.count);
      for (const auto& x : w.all_refused()) {
        all.push_back(x);
        by_reason[reason(x)].push_back(x);
      }
    }
    fmt::print("{}: {:.1f} % of the slots in use\n  {:<38} {:>7} {:>8} {:>7} {:>7} {:>9} {:>9} "
               "{:>8} {:>8}\n",
               r.name, 100 * used, "reason", "refused", "right %", "early %", "late %", "ms right",
               "t median", "p90", "p99");
    for (const auto& [name, some] : by_reason) print_row(name, some);
    if (all.empty()) {
      holds = promised(std::string{"refusals: "} + r.name, "none", "some", false) && holds;
      continue;
    }
    print_row("all", all);
    if (!r.promised) continue;
    const auto right = part(
        static_cast<std::size_t>(std::count_if(all.begin(), all.end(),
                                               [](const refused& x) { return x.header_right(); })),
        all.size());
    holds = promised(std::string{"Retry-After in [t, 1.2 t + 1 s], "} + r.name,
                     fmt::format("{:.1f} % of {} refusals", 100 * right, all.size()),
                     fmt::format("at least {:g} %", 100 * bar), right >= bar) &&
            holds;
  }
  return holds;
}

}  // namespace troupe::bench
