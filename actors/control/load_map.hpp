#pragma once

#include "actors/control/assignment.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::control {

/// What loads are averaged over: they fade by a factor of e in this time.
inline constexpr std::chrono::seconds load_window{60};

/// Load of the keys from `first` to `last`, in any unit that adds up (model units, requests).
struct range_load {
  key64 first = 0;
  key64 last = 0;
  double load = 0;
};
/// Load of one key; it is in its range's load, too.
struct key_load {
  key64 key = 0;
  double load = 0;
};

/// What is known of the load on the key space: even within a range, but for the keys that stand
/// out. Ranges may overlap (the replicas of a slice each report their part): loads add up. Pure.
class load_map {
 public:
  load_map() = default;
  /// Loads that are no numbers, or below zero, count as zero; ranges that end before they begin are
  /// left out.
  load_map(std::span<const range_load> ranges, std::span<const key_load> keys);

  double total() const { return total_; }
  /// Of the keys from `first` to `last`.
  double of(key64 first, key64 last) const;
  /// Keys that stand out from `first` to `last`, in order.
  std::span<const key_load> keys_in(key64 first, key64 last) const;

 private:
  /// Of all keys before `key`, those that stand out not counted.
  double even_before(key64 key) const;

  struct step {
    key64 first = 0;
    double before = 0;   ///< load of all keys before `first`
    double density = 0;  ///< load per key from here on
  };
  std::vector<step> steps_;
  std::vector<key_load> keys_;       ///< ascending
  std::vector<double> keys_before_;  ///< sums of their loads
  double total_ = 0;
};

/// The hottest shard's load over the mean of all in `shards_counted` (indices of `a.shards()`;
/// empty: of all). 1 where there is no load.
double imbalance(const assignment& a, const load_map& load,
                 std::span<const std::uint16_t> shards_counted = {});

}  // namespace troupe::control
