#pragma once

#include "actors/admission/budget.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::admission {

/// What was so long ago counts for 1/e: a burst that is over sooner is no lasting overload.
inline constexpr double demand_memory_s = 10;

/// MU that are asked for per second, lately. Pure.
class demand_rate {
 public:
  void asked(double mu, time_point now) {
    mu_ = fading(now) + mu;
    last_ = now;
  }
  double per_second(time_point now) const { return fading(now) / demand_memory_s; }

 private:
  double fading(time_point now) const {
    return mu_ * std::exp(-std::max(0.0, seconds(now - last_).count()) / demand_memory_s);
  }

  double mu_ = 0;
  time_point last_{};
};

}  // namespace troupe::admission
