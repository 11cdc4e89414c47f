#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace troupe::request {

/// Further attempts that a node may begin at once, and how many it gets back a second. A lost
/// engine costs one for each of its streams: at most 255.
inline constexpr double retry_burst = 2'048;
inline constexpr double retries_per_second = 256;
/// The longest that an accepted stream is made to wait for its next attempt by the budget.
inline constexpr std::chrono::milliseconds retry_wait_max{5'000};

/// How many attempts a node may repeat: engines that fail again and again must not be kept busy by
/// repetitions alone. Accepted streams take on credit, and are paced by it; others are refused
/// while there is a debt. Pure.
class retry_budget {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit retry_budget(double burst = retry_burst, double per_second = retries_per_second)
      : burst_(burst), per_second_(per_second), left_(burst) {}

  /// For a stream that the client reads: always given, after the pause that is returned.
  std::chrono::milliseconds pace(time_point now) {
    refill(now);
    left_ = std::max(left_ - 1, -per_second_ * seconds(retry_wait_max));
    return debt();
  }
  /// For a request whose client has nothing yet. False: there is none.
  bool try_take(time_point now) {
    refill(now);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  /// When accepted streams wait for their turn: how long a new request should stay away. 0: none
  /// waits.
  std::chrono::milliseconds debt(time_point now) {
    refill(now);
    return debt();
  }

 private:
  static double seconds(std::chrono::milliseconds t) {
    return static_cast<double>(t.count()) / 1e3;
  }
  std::chrono::milliseconds debt() const {
    if (left_ >= 0) return std::chrono::milliseconds{0};
    return std::chrono::milliseconds{static_cast<std::int64_t>(-left_ / per_second_ * 1e3)};
  }
  void refill(time_point now) {
    if (now <= last_) return;
    if (last_ != time_point{})
      left_ = std::min(burst_,
                       left_ + per_second_ * std::chrono::duration<double>(now - last_).count());
    last_ = now;
  }

  double burst_;
  double per_second_;
  double left_;
  time_point last_{};
};

}  // namespace troupe::request
