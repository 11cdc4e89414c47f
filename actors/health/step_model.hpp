#pragma once

#include <chrono>
#include <cstdint>

namespace troupe::health {

/// How long an engine's steps take: seconds = a · steps + b · tokens, both not negative, fitted to
/// what was seen lately (least squares with exponential forgetting). Prefill and decode, alone or
/// in batches, are then comparable. Pure.
class step_model {
 public:
  void learn(std::uint64_t steps, std::uint64_t tokens, std::chrono::nanoseconds time);
  /// Zero while nothing was learnt.
  std::chrono::nanoseconds predict(std::uint64_t steps, std::uint64_t tokens) const;
  std::uint32_t lessons() const { return lessons_; }

 private:
  /// What an observation weighs after each later one.
  static constexpr double memory = 0.98;

  double ss_ = 0, st_ = 0, tt_ = 0, ys_ = 0, yt_ = 0;  ///< weighted sums of products
  double per_step_ = 0;                                ///< seconds
  double per_token_ = 0;                               ///< seconds
  std::uint32_t lessons_ = 0;
};

}  // namespace troupe::health
