#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::kv {

/// How many tokens an answer will probably have, learnt from finished ones: running mean plus twice
/// the running mean deviation, which about nine in ten stay below. Reservations use it, so a wrong
/// guess costs a pre-emption, never an answer. A value type.
class output_predictor {
 public:
  /// Also right after the start, and for engines whose answers are all tiny: one reservation is
  /// worth at least this.
  static constexpr std::uint32_t tokens_min = 64;
  static constexpr double tokens_at_start = 256;
  static constexpr double weight = 0.05;  ///< of the newest answer

  void learn(std::uint32_t tokens) {
    deviation_ += weight * (std::max(tokens - mean_, mean_ - tokens) - deviation_);
    mean_ += weight * (tokens - mean_);
  }

  std::uint32_t predict(std::uint32_t max_tokens) const {
    return std::min(max_tokens,
                    std::max(tokens_min, static_cast<std::uint32_t>(mean_ + 2 * deviation_)));
  }

 private:
  double mean_ = tokens_at_start;
  double deviation_ = 0;
};

}  // namespace troupe::kv
