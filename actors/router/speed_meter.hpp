#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::router {

/// An engine's speeds, from the counters that it reports: tokens of prompts computed, tokens
/// sampled, and the time that its forward passes took. A stretch in which it did only one of both
/// tells that speed. Of one with both, prompts took what passes without any do not, as many as
/// there were: the more streams share a pass the less each takes, and an engine must not seem to be
/// faster at prompts for that, or the busiest would get everything. Speeds are of busy time, and of
/// sampled tokens in whatever batches there were. A value type.
class speed_meter {
 public:
  /// Shorter stretches are left to grow.
  static constexpr std::uint64_t stretch_us_min = 20'000;
  /// Share of a new stretch in what is known.
  static constexpr double share = 0.2;

  /// Counters since the engine began. True: a speed has changed.
  bool add(std::uint64_t prefilled, std::uint64_t sampled, std::uint64_t busy_us,
           std::uint64_t passes) {
    if (prefilled < prefilled_ || sampled < sampled_ || busy_us < busy_us_ || passes < passes_)
      *this = {};
    const auto p = static_cast<double>(prefilled - prefilled_),
               s = static_cast<double>(sampled - sampled_),
               n = static_cast<double>(passes - passes_);
    const auto us = busy_us - busy_us_;
    if (us < stretch_us_min || (p == 0 && s == 0)) return false;
    prefilled_ = prefilled;
    sampled_ = sampled;
    busy_us_ = busy_us;
    passes_ = passes;
    const double seconds = static_cast<double>(us) / 1e6;
    if (s == 0) {
      blend(prefill_, seconds / p);
    } else if (p == 0) {
      blend(decode_, seconds / s);
      if (n > 0) blend(pass_, seconds / n);
    } else if (pass_ > 0 && n > 0) {
      const double sampling = std::min(n * pass_, seconds);
      blend(decode_, sampling / s);
      if (sampling < seconds) blend(prefill_, (seconds - sampling) / p);
    } else {
      return false;  // nobody can tell what took how long
    }
    return true;
  }

  bool any() const { return prefill_ > 0 || decode_ > 0; }
  /// 0: not measured.
  double prefill_tokens_per_second() const { return prefill_ > 0 ? 1 / prefill_ : 0; }
  double decode_tokens_per_second() const { return decode_ > 0 ? 1 / decode_ : 0; }

 private:
  static void blend(double& known, double seconds) {
    known = known > 0 ? known + share * (seconds - known) : seconds;
  }

  std::uint64_t prefilled_ = 0, sampled_ = 0, busy_us_ = 0, passes_ = 0;
  double prefill_ = 0, decode_ = 0;  ///< seconds per token
  double pass_ = 0;                  ///< seconds, where it only samples
};

}  // namespace troupe::router
