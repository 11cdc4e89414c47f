#include "apps/bench/calibration_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace troupe::bench {

namespace {

constexpr double half = 0.5;
/// Requests of the capacity's search: enough for a p95, and several rounds of each connection.
constexpr std::uint32_t capacity_requests_min = 24;
constexpr std::uint32_t capacity_rounds = 5;

class lengths {
 public:
  lengths(const calibration_scope& scope, std::uint64_t stream)
      : scope_(scope), random_(scope.seed * 1'000'003 + stream) {}

  request_lengths draw() { return {between(scope_.prompts), between(scope_.outputs)}; }

 private:
  // The standard library's distributions differ between implementations; this does not.
  std::uint32_t between(const std::vector<std::uint32_t>& all) {
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    const double low = *least, high = *most;
    const auto u = static_cast<double>(random_() >> 11U) * 0x1p-53;
    return static_cast<std::uint32_t>(std::lround(low * std::pow(high / low, u)));
  }

  const calibration_scope& scope_;
  std::mt19937_64 random_;
};

workload mixed(const calibration_scope& scope, std::string name, std::uint32_t concurrency,
               std::uint32_t requests, std::uint64_t stream) {
  workload w{std::move(name), concurrency * scope.engines, 0, {}};
  lengths from{scope, stream};
  requests = std::min(requests * scope.engines, workload_requests_max);
  for (std::uint32_t i = 0; i < requests; ++i) w.requests.push_back(from.draw());
  return w;
}

std::uint32_t middle_of(std::vector<std::uint32_t> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

}  // namespace

std::vector<workload> sweep_of(const calibration_scope& scope) {
  std::vector<workload> all;
  const auto add = [&](std::uint32_t c, std::uint32_t prompt, std::uint32_t output, double shared) {
    workload w;
    w.concurrency = c * scope.engines;
    w.shared = shared;
    w.name = fmt::format("{} at once, {} in, {} out{}", c, prompt, output,
                         shared > 0 ? ", half of it shared" : "");
    const auto n = std::min(std::max(scope.requests_min * scope.engines, 2 * w.concurrency),
                            workload_requests_max);
    w.requests.assign(n, {prompt, output});
    all.push_back(std::move(w));
  };
  for (const auto c : scope.concurrency)
    for (const auto prompt : scope.prompts)
      for (const auto output : scope.outputs) add(c, prompt, output, 0);
  add(middle_of(scope.concurrency), *std::max_element(scope.prompts.begin(), scope.prompts.end()),
      *std::min_element(scope.outputs.begin(), scope.outputs.end()), half);
  return all;
}

std::vector<workload> held_out_of(const calibration_scope& scope) {
  std::vector<workload> all;
  std::uint64_t stream = 1;
  for (const auto c : scope.concurrency)
    all.push_back(mixed(scope, fmt::format("mixed, {} at once", c), c, scope.held_out, stream++));
  const auto c = middle_of(scope.concurrency);
  all.push_back(
      mixed(scope, fmt::format("half of each cached, {} at once", c), c, scope.held_out, stream));
  all.back().shared = half;
  return all;
}

workload capacity_load(const calibration_scope& scope, std::uint32_t concurrency) {
  constexpr std::uint64_t streams_before = 1'000;
  return mixed(scope, fmt::format("capacity, {} at once", concurrency), concurrency,
               std::max(capacity_requests_min, capacity_rounds * concurrency),
               streams_before + concurrency);
}

std::uint64_t prompt_key(std::uint32_t run, std::uint64_t number) {
  constexpr std::uint32_t run_mask = (1U << 28U) - 1;
  return (static_cast<std::uint64_t>(run & run_mask) << 32U) | (number & 0xffff'ffffU);
}

std::string prompt_of(const workload& w, const prompt_maker& shared, const prompt_maker& own,
                      const planned_request& r) {
  auto first = r, rest = r;
  first.prompt_bytes = static_cast<std::uint32_t>(r.prompt_bytes * w.shared);
  rest.prompt_bytes -= first.prompt_bytes;
  return (first.prompt_bytes > 0 ? shared.make(first) : std::string{}) + own.make(rest);
}

std::vector<std::uint32_t> capacity_levels(std::uint32_t most) {
  std::vector<std::uint32_t> all;
  for (int half_doublings = 0;; ++half_doublings) {
    const auto level = static_cast<std::uint32_t>(std::lround(std::exp2(half_doublings / 2.0)));
    if (level > most) break;
    if (all.empty() || all.back() != level) all.push_back(level);
  }
  return all;
}

}  // namespace troupe::bench
