#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace troupe::router {

/// What an engine has done lately, in seconds of its whole capacity, from the counters that it
/// reports and what a token of each kind costs there. Unlike the time that its passes took, this
/// doesn't call an engine busy that runs one stream. A value type.
class work_meter {
 public:
  /// What was done counts for less by a factor of e in this time: long enough for a prompt of many
  /// seconds to be one among others.
  static constexpr std::chrono::seconds window{60};
  using time_point = std::chrono::steady_clock::time_point;

  /// Counters since the engine began, and seconds for a token. Those that have gone back are
  /// another engine's: it begins again. The first ones say nothing of when it was done.
  void add(std::uint64_t prefilled, std::uint64_t sampled, double prefill_seconds,
           double sample_seconds, time_point now) {
    if (!begun_ || prefilled < prefilled_ || sampled < sampled_) {
      *this = {};
    } else {
      const std::chrono::duration<double> since = now - at_;
      done_ = done_ * std::exp(-since / window) +
              static_cast<double>(prefilled - prefilled_) * prefill_seconds +
              static_cast<double>(sampled - sampled_) * sample_seconds;
    }
    begun_ = true;
    prefilled_ = prefilled;
    sampled_ = sampled;
    at_ = now;
  }

  /// At the last report, of `window`; 0: nothing is known yet.
  double seconds() const { return done_; }

 private:
  bool begun_ = false;
  std::uint64_t prefilled_ = 0, sampled_ = 0;
  time_point at_{};
  double done_ = 0;
};

}  // namespace troupe::router
