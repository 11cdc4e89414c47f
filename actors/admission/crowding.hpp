#pragma once

#include "actors/admission/budget.hpp"

#include <cmath>

namespace troupe::admission {

/// What was so long ago counts for 1/e: what comes at once and is over sooner is no lasting crowd.
inline constexpr double crowding_memory_s = 5;
/// Fewer requests than this, as they fade, say nothing.
inline constexpr double crowd_min = 3;
/// A crowd begins when fewer than this part of requests find a place free, and ends when more than
/// that do: its short queue lets some find one.
inline constexpr double crowd_begins_below = 0.2, crowd_ends_above = 0.5;
/// A tenant has a part in it when fewer of its requests than this come while none of it waits.
inline constexpr double crowds_below = 0.5;
/// Whoever begins within this has not waited.
inline constexpr milliseconds at_once_max{1};

/// The part of what happened lately that was so. Pure.
class part_lately {
 public:
  void note(bool so, time_point now) {
    const double keep = kept(now);
    so_ = so_ * keep + (so ? 1 : 0);
    all_ = all_ * keep + 1;
    last_ = now;
  }
  /// `unknown`: where too little happened.
  double part(time_point now, double unknown) const {
    return all_ * kept(now) >= crowd_min ? so_ / all_ : unknown;
  }

 private:
  double kept(time_point now) const {
    return std::exp(-std::max(0.0, seconds(now - last_).count()) / crowding_memory_s);
  }

  double so_ = 0, all_ = 0;
  time_point last_{};
};

/// Whether requests find no place free, not just for a moment: then a queue only delays everybody,
/// and takes nothing up. Pure.
class crowding {
 public:
  void began(seconds waited, time_point now) {
    at_once_.note(waited <= at_once_max, now);
    crowded_ = at_once_.part(now, 1) < (crowded_ ? crowd_ends_above : crowd_begins_below);
  }
  bool lasts(time_point now) const { return crowded_ && at_once_.part(now, 1) < crowd_ends_above; }

 private:
  part_lately at_once_;
  bool crowded_ = false;
};

}  // namespace troupe::admission
