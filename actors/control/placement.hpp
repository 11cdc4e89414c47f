#pragma once

#include "actors/control/slice_plan.hpp"

#include <cstdint>
#include <vector>

namespace troupe::control {

/// The price of a shard's load, after Dicer: nothing within [least, most], else rising the faster
/// the farther it is from there.
double load_price(double load, double least, double most);

/// A greedy local search: slices of the hottest shard are moved to a colder one, replicated there,
/// or given up to their other replicas; each step takes the change that lowers the price most.
class placement {
 public:
  /// `spent`: the part of the key space that has been moved already.
  placement(slice_plan& plan, const assigner_limits& limits, double spent);

  /// Returns how many steps it took.
  std::uint32_t search();
  double churn() const { return spent_; }

 private:
  enum class act : std::uint8_t { reassign, replicate, give_up };
  struct change {
    act how = act::reassign;
    piece* what = nullptr;
    std::uint16_t to = 0;
    double gain = 0;
  };

  double price_of(std::uint16_t shard, double load, std::size_t pieces) const;
  void consider(change& best, act how, piece& p, std::uint16_t to) const;
  std::vector<std::uint16_t> after(act how, const piece& p, std::uint16_t to) const;
  void apply(const change& c);
  std::uint16_t hottest() const;
  std::vector<std::uint16_t> coldest() const;

  slice_plan& plan_;
  const assigner_limits& limits_;
  double spent_;
  std::uint16_t from_ = 0;           ///< the hottest, of this step
  std::size_t slots_ = 0;            ///< replicas of all slices
  std::vector<double> load_;         ///< by shard
  std::vector<std::size_t> pieces_;  ///< by shard
  std::vector<bool> fresh_;          ///< by shard: it has had nothing so far
};

}  // namespace troupe::control
