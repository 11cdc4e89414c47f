#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::sim {

/// Numbers that follow from a seed alone, the same on every machine (SplitMix64; Steele, Lea,
/// Flood 2014). Each purpose has its own, so that a change in one does not move the others.
class seeded {
 public:
  explicit seeded(std::uint64_t seed, std::uint64_t purpose = 0)
      : state_(seed * 0x9E3779B97F4A7C15ULL ^ (purpose + 1) * 0xD1B54A32D192ED03ULL) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    auto x = state_;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31U);
  }
  /// In [0, n); n > 0. The bias of the remainder is below 2^-40 for what is asked here.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  std::size_t index(std::size_t n) { return static_cast<std::size_t>(below(n)); }
  bool chance(double p) { return static_cast<double>(next() >> 11U) * 0x1.0p-53 < p; }
  template <class Duration>
  Duration between(Duration low, Duration high) {
    return low + Duration{static_cast<typename Duration::rep>(
                     below(static_cast<std::uint64_t>((high - low).count()) + 1))};
  }

 private:
  std::uint64_t state_;
};

}  // namespace troupe::sim
