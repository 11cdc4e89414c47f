#pragma once

#include <cstdint>
#include <vector>

namespace troupe::bench {

/// Counts values in buckets whose width grows with the value, so that any percentile is right
/// within `relative_error_max` at a fixed cost, however many values there are. Values are durations
/// in nanoseconds here, but any integer will do. Not thread-safe.
class histogram {
 public:
  /// 2^9 buckets for each doubling.
  static constexpr unsigned precision_bits = 9;
  static constexpr double relative_error_max = 1.0 / (1U << precision_bits);

  void record(std::uint64_t value);

  std::uint64_t count() const { return count_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  std::uint64_t max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

  /// The smallest value that is not less than `percent` (0 to 100) of all values; 0 when there are
  /// none. The highest is exact.
  std::uint64_t percentile(double percent) const;

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace troupe::bench
