#pragma once

#include "actors/control/assigner.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::control {

/// A slice while an assignment is made.
struct piece {
  key64 first = 0;
  key64 last = 0;
  double load = 0;                      ///< with its part of the reserved load
  std::vector<std::uint16_t> home;      ///< live shards that have it now
  std::vector<std::uint16_t> replicas;  ///< that will; ascending

  double each() const { return load / static_cast<double>(replicas.size()); }
  double keys() const { return width(first, last); }
  /// The part of its requests that would go to new shards.
  double moved() const;
  bool on(std::uint16_t shard) const;
};

/// The slices of a round, and how they are cut: the steps of the assigner before and after the
/// search. Pure; used by `assign` alone.
class slice_plan {
 public:
  slice_plan(const assignment& now, std::span<const shard_state> shards, const load_map& load,
             const assigner_limits& limits);

  void drop_and_clamp();  ///< unhealthy shards, then replicas out of bounds
  void split_hot();
  void merge_cold();
  void split_to_minimum();
  void merge_same();

  std::vector<piece>& pieces() { return pieces_; }
  /// Indices of the shards that may be used; ascending, not empty.
  const std::vector<std::uint16_t>& healthy() const { return healthy_; }
  double scale() const { return scale_; }  ///< max(hint, mean)
  double mean() const { return mean_; }    ///< load of a shard, with the reserved one
  double tau() const { return limits_.tolerance * scale_; }
  std::size_t replicas_max() const;
  std::size_t slots_max() const { return limits_.slices_max * healthy_.size(); }
  std::size_t slots() const;  ///< replicas of all slices
  double forced() const { return forced_; }
  double merge_churn() const { return merge_churn_; }

 private:
  double load_of(key64 first, key64 last) const;
  bool can_split(const piece& p) const { return p.first < p.last; }
  /// Cuts before `at`, which is in the piece and not its first key.
  piece cut(piece& p, key64 at) const;
  void join(piece& into, const piece& next);
  /// Merges neighbours that `may` allows, while more than the minimum is there.
  template <class May>
  void merge(std::size_t least, May&& may);

  const load_map& load_;
  const assigner_limits& limits_;
  std::vector<std::uint16_t> healthy_;
  double reserved_ = 0;  ///< in all
  double scale_ = 1;
  double mean_ = 1;
  double forced_ = 0;
  double merge_churn_ = 0;
  std::vector<piece> pieces_;
};

}  // namespace troupe::control
