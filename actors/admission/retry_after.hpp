#pragma once

#include "actors/admission/budget.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe::admission {

/// Clients that were refused together don't come back together: up to so much later, never sooner.
/// 20 % are allowed; what is left is for the error of the estimate.
inline constexpr double retry_jitter_max = 0.1;
inline constexpr seconds retry_after_max{3'600.0};

/// What a refusal says: the estimate, with `draw` in [0, 1) for the jitter. Rounded up to a
/// millisecond, at least one. Pure.
inline milliseconds retry_after(seconds estimate, double draw) {
  const auto s = std::clamp(estimate.count(), 0.0, retry_after_max.count());
  const auto ms = std::ceil(s * 1e3 * (1 + retry_jitter_max * std::clamp(draw, 0.0, 1.0)));
  return milliseconds{std::max<std::int64_t>(1, static_cast<std::int64_t>(ms))};
}

/// The header `Retry-After`, which knows whole seconds only.
inline std::int64_t whole_seconds(milliseconds t) { return (t.count() + 999) / 1'000; }

}  // namespace troupe::admission
