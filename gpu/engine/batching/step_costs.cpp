#include "gpu/engine/batching/step_costs.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::engine {

step_costs::fit::row step_costs::describe(std::span<const step_part> parts) {
  fit::row x{};
  for (const auto& p : parts) {
    if (p.decode) {
      x[decode_token] += 1;
      x[decode_context] += p.from + 1.0;
    } else {
      x[prefill_token] += p.tokens;
      x[prefill_context] += context_of(p);
    }
  }
  x[decode_step] = x[decode_token] > 0 ? 1 : 0;
  x[prefill_step] = 1 - x[decode_step];
  return x;
}

std::vector<std::chrono::nanoseconds> step_costs::divide(std::span<const step_part> parts,
                                                         std::chrono::nanoseconds took) const {
  const auto all = describe(parts);
  std::vector<double> weights;
  for (const auto& p : parts) {
    if (p.decode)
      weights.push_back(seconds_[decode_step] / all[decode_token] + seconds_[decode_token] +
                        seconds_[decode_context] * (p.from + 1.0));
    else
      weights.push_back(seconds_[prefill_step] * all[prefill_step] * p.tokens /
                            std::max(1.0, all[prefill_token]) +
                        seconds_[prefill_token] * p.tokens +
                        seconds_[prefill_context] * context_of(p));
  }
  auto sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(sum > 0)) {  // what was seen says that such passes take no time
    weights.clear();
    for (const auto& p : parts) weights.push_back(std::max<position>(1, p.tokens));
    sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  std::vector<std::chrono::nanoseconds> shares;
  double before = 0;
  std::chrono::nanoseconds given{0};
  for (const auto w : weights) {
    before += w;
    const auto upto = shares.size() + 1 == weights.size()
                          ? took
                          : std::chrono::nanoseconds(static_cast<std::int64_t>(
                                static_cast<double>(took.count()) * (before / sum)));
    shares.push_back(std::max(upto, given) - given);
    given = std::max(upto, given);
  }
  return shares;
}

void step_costs::learn(std::span<const step_part> parts, std::chrono::nanoseconds took) {
  const auto y = std::chrono::duration<double>(took).count();
  if (parts.empty() || y <= 0) return;
  seen_.fade(memory);
  seen_.add(describe(parts), y, 1 / (y * y));
  if (++lessons_ % passes_per_fit != 0) return;
  seconds_ = seen_.solve();
}

}  // namespace troupe::engine
