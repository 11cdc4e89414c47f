#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::gguf {

inline constexpr char32_t last_code_point = 0x10FFFF;

/// A set of code points, as ranges in order that neither touch nor overlap.
class code_points {
 public:
  using range = std::pair<char32_t, char32_t>;  ///< first and last

  code_points() = default;
  code_points(std::initializer_list<range> ranges) {
    for (const auto& r : ranges) add(r.first, r.second);
  }

  void add(char32_t first, char32_t last) {
    ranges_.emplace_back(first, last);
    std::sort(ranges_.begin(), ranges_.end());
    std::vector<range> joined;
    for (const auto& r : ranges_)
      if (joined.empty() || r.first > joined.back().second + 1)
        joined.push_back(r);
      else
        joined.back().second = std::max(joined.back().second, r.second);
    ranges_ = std::move(joined);
  }
  void add(const code_points& other) {
    for (const auto& r : other.ranges_) add(r.first, r.second);
  }

  code_points complement() const {
    code_points out;
    char32_t next = 0;
    for (const auto& r : ranges_) {
      if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
      next = r.second + 1;
    }
    if (next <= last_code_point) out.ranges_.emplace_back(next, last_code_point);
    return out;
  }
  /// What of both.
  code_points among(const code_points& other) const {
    auto outside = complement();
    outside.add(other.complement());
    return outside.complement();
  }

  bool contains(char32_t c) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [c](const range& r) { return r.first <= c && c <= r.second; });
  }
  bool empty() const { return ranges_.empty(); }
  /// Whether it is one code point.
  bool single() const { return ranges_.size() == 1 && ranges_[0].first == ranges_[0].second; }
  const std::vector<range>& ranges() const { return ranges_; }

 private:
  std::vector<range> ranges_;
};

}  // namespace troupe::gguf
