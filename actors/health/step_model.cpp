#include "actors/health/step_model.hpp"

#include <algorithm>

namespace troupe::health {

namespace {

/// Below this part of what it could be, the determinant says that steps and tokens always came in
/// the same ratio: then one of the two explains all.
constexpr double singular = 1e-3;

}  // namespace

void step_model::learn(std::uint64_t steps, std::uint64_t tokens, std::chrono::nanoseconds time) {
  const auto s = static_cast<double>(steps), t = static_cast<double>(tokens);
  const auto y = std::chrono::duration<double>(time).count();
  // Relative errors count: a long prefill must not outweigh a hundred decode steps.
  const double weight = y > 0 ? 1 / (y * y) : 0;
  ss_ = ss_ * memory + s * s * weight;
  st_ = st_ * memory + s * t * weight;
  tt_ = tt_ * memory + t * t * weight;
  ys_ = ys_ * memory + y * s * weight;
  yt_ = yt_ * memory + y * t * weight;
  ++lessons_;
  const auto determinant = ss_ * tt_ - st_ * st_;
  if (determinant > singular * ss_ * tt_) {
    per_step_ = (ys_ * tt_ - yt_ * st_) / determinant;
    per_token_ = (yt_ * ss_ - ys_ * st_) / determinant;
    if (per_step_ >= 0 && per_token_ >= 0) return;
  }
  // One parameter: that which leaves less unexplained.
  const double by_steps = ss_ > 0 ? ys_ / ss_ : 0, by_tokens = tt_ > 0 ? yt_ / tt_ : 0;
  const bool tokens_explain = yt_ * by_tokens >= ys_ * by_steps;
  per_step_ = tokens_explain ? 0 : by_steps;
  per_token_ = tokens_explain ? by_tokens : 0;
}

std::chrono::nanoseconds step_model::predict(std::uint64_t steps, std::uint64_t tokens) const {
  const auto seconds = per_step_ * static_cast<double>(steps) +
                       per_token_ * static_cast<double>(tokens);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::max(0.0, seconds)));
}

}  // namespace troupe::health
