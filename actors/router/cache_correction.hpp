#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::router {

/// How much of a cached prefix that the byte chain promises is found in truth, per model. The chain
/// is over the request as the client wrote it; templates move tools and system text, insert dates
/// and strip old reasoning, so that the tokens part earlier. From predictions and what workers
/// found; never above what the chain says. A value type.
class cache_correction {
 public:
  /// Share of one observation in what is known.
  static constexpr double share = 0.1;
  /// Predictions below this say little: a block more or less is within the rounding.
  static constexpr std::uint32_t predicted_tokens_min = 64;

  /// `promised` by the chain alone, before any correction.
  void add(std::uint32_t promised, std::uint32_t found) {
    if (promised < predicted_tokens_min) return;
    const double now = std::min(1.0, static_cast<double>(found) / promised);
    ratio_ += share * (now - ratio_);
  }
  std::uint32_t apply(std::uint32_t promised) const {
    return static_cast<std::uint32_t>(promised * ratio_);
  }
  double ratio() const { return ratio_; }

 private:
  double ratio_ = 1;
};

}  // namespace troupe::router
