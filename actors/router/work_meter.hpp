#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace troupe::router {

/// What an engine has done lately, in seconds of its whole capacity, from the counters that it
/// reports and what a token of each kind costs there (0: that is not known, and not counted).
/// Unlike the time that its passes took, this doesn't call an engine busy that runs one stream. A
/// value type.
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
      const double kept = std::exp(-(std::chrono::duration<double>{now - at_} / window));
      unseen_ *= kept;
      done_ = done_ * kept + static_cast<double>(prefilled - prefilled_) * prefill_seconds +
              static_cast<double>(sampled - sampled_) * sample_seconds;
    }
    begun_ = true;
    prefilled_ = prefilled;
    sampled_ = sampled;
    at_ = now;
  }

  /// At the last report, of `window`.
  double seconds() const { return done_; }
  /// The part of the window before the first report, of which nothing is known; 1: of all of it.
  double unseen() const { return unseen_; }

 private:
  bool begun_ = false;
  std::uint64_t prefilled_ = 0, sampled_ = 0;
  time_point at_{};
  double done_ = 0;
  double unseen_ = 1;
};

}  // namespace troupe::router
