#pragma once

#include "actors/control/assignment.hpp"
#include "actors/control/load_map.hpp"

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe::control {

/// Constants of the assigner: Dicer's (POLICIES: https://github.com/databricks/dicer), and Slicer's
/// caps (OSDI'16).
struct assigner_limits {
  double tolerance = 0.1;           ///< of max(load_hint, mean load of a shard): "tau"
  std::uint32_t slices_min = 32;    ///< replicas of slices for each shard
  std::uint32_t slices_max = 64;    ///< the same; more only while a lost shard's are merged
  std::uint32_t replicas_min = 1;   ///< of a slice; never more than there are shards
  std::uint32_t replicas_max = 8;   ///< the same
  double load_hint = 0;             ///< what a shard can carry; 0: nobody knows, the mean counts
  double reserved_uniform = 0.1;    ///< of hint x shards, spread evenly: keys not seen yet
  double churn_price = 0.25;        ///< x load moved
  double churn_max = 0.09;          ///< of the key space that moves between live shards in a round
  double merge_churn_max = 0.01;    ///< the same, of merges
  double improvement_min = 1e-10;   ///< of the price, x tau: less than that ends the search
  std::uint32_t steps_max = 2'048;  ///< of the search: by steps, not by time, so that it repeats
  std::uint32_t targets_max = 8;    ///< coldest shards that are tried for each slice
};

struct shard_state {
  std::string name;
  bool healthy = true;
};

/// One round of the assigner.
struct assigner_round {
  assignment next;
  double imbalance_before = 1;  ///< of the shards that are healthy, as `imbalance`
  double imbalance = 1;
  double churn = 0;   ///< part of the key space that moved between live shards: at most `churn_max`
  double forced = 0;  ///< part that had no live shard any more, and was given to one
  std::uint32_t steps = 0;  ///< of the search
};

/// The next assignment: shards that are not healthy lose their slices; replicas are clamped; hot
/// slices are split (a hot key into a slice of its own), cold neighbours merged, slices split up to
/// the minimum count; then slices of the hottest shard are moved, replicated or given up, as long
/// as the price falls; then neighbours with the same shards are merged.
///
/// `shards` are those that may be used, in the order in which the result numbers them. Without a
/// healthy one nothing changes but the number: whoever is left is found by trying. Pure.
assigner_round assign(const assignment& now, std::span<const shard_state> shards,
                      const load_map& load, const assigner_limits& limits,
                      assignment_number number);

/// `next`, but what one of `held` has in `now` stays as it is there, as far as its shards are still
/// there. `now` with the number of `next` where that is more slices than there may be. Pure.
assignment hold(const assignment& now, const assignment& next, const std::set<std::string>& held);

/// The part of the key space whose requests go to other shards than before. A key with several
/// shards counts by the part of them that is new.
double churn_between(const assignment& before, const assignment& after);

}  // namespace troupe::control
