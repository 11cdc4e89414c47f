#include "apps/bench/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace troupe::bench {

namespace {

constexpr unsigned bits = histogram::precision_bits;
constexpr std::uint64_t buckets_per_doubling = 1U << bits;

// Values below 2^(bits+1) have a bucket each; above, a value keeps its leading bits+1 bits.
std::size_t bucket_of(std::uint64_t value) {
  const auto width = static_cast<unsigned>(std::bit_width(value));
  const unsigned dropped = width > bits + 1 ? width - (bits + 1) : 0;
  return dropped * buckets_per_doubling + (value >> dropped);
}

// The largest value of a bucket.
std::uint64_t upper_end_of(std::size_t bucket) {
  if (bucket < 2 * buckets_per_doubling) return bucket;
  const auto dropped = static_cast<unsigned>(bucket / buckets_per_doubling - 1);
  const auto leading = bucket - dropped * buckets_per_doubling;
  return (leading << dropped) + ((std::uint64_t{1} << dropped) - 1);
}

}  // namespace

void histogram::record(std::uint64_t value) {
  const auto bucket = bucket_of(value);
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  ++counts_[bucket];
  ++count_;
  sum_ += static_cast<double>(value);
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

std::uint64_t histogram::percentile(double percent) const {
  if (count_ == 0) return 0;
  // The small subtraction keeps 99.9 % of 1,000 at 999, whatever the division rounds to.
  const auto wanted = std::ceil(percent / 100.0 * static_cast<double>(count_) - 1e-9);
  const auto rank = std::clamp<std::uint64_t>(wanted > 0 ? static_cast<std::uint64_t>(wanted) : 1,
                                              1, count_);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (seen >= rank) return std::clamp(upper_end_of(bucket), min_, max_);
  }
  return max_;
}

}  // namespace troupe::bench
