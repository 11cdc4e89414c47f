#pragma once

#include "actors/control/assignment.hpp"
#include "actors/control/shard_load.hpp"
#include "actors/router/heavy_keys.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::router {

/// What a shard's decisions have given engines to do, by the slices of the assignment that it goes
/// by, and by keys that stand out. All of it fades (`control::load_window`). Pure: time is passed
/// in, and does not go back.
class load_book {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  /// So many keys are counted apart: one with a 64th of the load stands out, and is known to a
  /// quarter of that.
  static constexpr std::size_t keys_counted = 4 * control::keys_told_max;

  explicit load_book(std::shared_ptr<const control::assignment> a);

  /// What is known of the keys of a slice is taken to be even within it.
  void assign(std::shared_ptr<const control::assignment> next);
  const control::assignment& by() const { return *assigned_; }
  const std::shared_ptr<const control::assignment>& shared() const { return assigned_; }

  /// A decision: `seconds` of engine time were leased.
  void note(control::key64 key, double seconds, time_point now);
  /// Ranges, keys and decisions per second.
  void tell(control::shard_load& out, time_point now) const;

 private:
  /// What a second of now weighs, in those of `since_`.
  double weight(time_point now) const;
  double per_second(double sum, time_point now) const;

  std::shared_ptr<const control::assignment> assigned_;
  time_point since_{};
  std::vector<double> slices_;  ///< by their place in the assignment
  double requests_ = 0;
  heavy_keys keys_{keys_counted};
};

}  // namespace troupe::router
