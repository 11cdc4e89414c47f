#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace troupe::router {

/// Which keys have most of the weight of all that is added: space-saving (Metwally, Agrawal and
/// El Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005)
/// with weights. Of a total T, each key with more than T / counters is among them, and none is
/// taken for more than T / counters too heavy. Fixed memory; pure.
class heavy_keys {
 public:
  explicit heavy_keys(std::size_t counters_max);

  void add(std::uint64_t key, double weight);
  /// All weights so far, times this.
  void scale(double by);

  struct counter {
    std::uint64_t key = 0;
    double weight = 0;  ///< at most
    double error = 0;   ///< of it, what may be others'
    double certain() const { return weight - error; }
  };
  /// Those that certainly have more than this, by their certain weight, the heaviest first.
  std::vector<counter> above(double weight) const;
  std::size_t size() const { return heap_.size(); }

 private:
  void sink(std::size_t i);
  void rise(std::size_t i);
  void swap(std::size_t a, std::size_t b);

  std::size_t counters_max_;
  std::vector<counter> heap_;  ///< the lightest first
  std::unordered_map<std::uint64_t, std::size_t> places_;
};

}  // namespace troupe::router
