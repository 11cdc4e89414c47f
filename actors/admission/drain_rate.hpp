#pragma once

#include "actors/admission/budget.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::admission {

/// What was so long ago counts for 1/e.
inline constexpr double drain_memory_s = 10;
/// Less than so much time is no measurement.
inline constexpr double drain_measured_s = 0.5;

/// MU that begin per second while others wait for it: what a queue is emptied with. Pure.
class drain_rate {
 public:
  explicit drain_rate(double expected_per_second = 0) : expected_(expected_per_second) {}
  /// What is taken until something is measured.
  void expect(double per_second) { expected_ = per_second; }

  /// One begins; `waited`: somebody has waited ever since the last call, so the time counts.
  void began(double mu, bool waited, time_point now) {
    if (waited && last_ != time_point{}) {
      const double dt = std::max(0.0, seconds(now - last_).count());
      const double keep = std::exp(-dt / drain_memory_s);
      mu_ = mu_ * keep + mu;
      time_ = time_ * keep + drain_memory_s * (1 - keep);
    }
    usual_ += (mu - usual_) * (usual_ > 0 ? usual_weight : 1);
    last_ = now;
  }
  double per_second() const { return time_ >= drain_measured_s ? mu_ / time_ : expected_; }
  bool measured() const { return time_ >= drain_measured_s; }
  /// MU that have flowed, so to speak, since the last one began: it comes in whole requests, the
  /// work behind it does not. A usual one at most: where none begins for long, nothing flows.
  double since_last(time_point now) const {
    if (last_ == time_point{}) return 0;
    return std::min(usual_, per_second() * std::max(0.0, seconds(now - last_).count()));
  }

 private:
  static constexpr double usual_weight = 0.05;  ///< of the newest

  double expected_;
  double mu_ = 0;
  double time_ = 0;
  double usual_ = 0;  ///< MU of one
  time_point last_{};
};

}  // namespace troupe::admission
