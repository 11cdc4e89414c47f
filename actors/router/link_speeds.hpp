#pragma once

#include "topology/topology.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace troupe::router {

/// How fast KV travels between hosts: measured per pair of hosts, else per distance, else assumed.
/// Not thread-safe.
class link_speeds {
 public:
  /// Smaller transfers measure the way's latency, not its bandwidth.
  static constexpr std::uint64_t sample_bytes_min = 65'536;
  /// Bytes per second; what is said to be beyond is taken for this.
  static constexpr double slowest_sample = 1e5, fastest_sample = 1e12;
  /// Share of a new sample in what is known.
  static constexpr double share = 0.2;
  /// Pairs of hosts that are remembered one by one; others by their distance only.
  static constexpr std::size_t pairs_max = 4'096;
  static constexpr std::size_t distances = 5;

  void add(std::uint32_t from, std::uint32_t to, topology::distance far, std::uint64_t bytes,
           std::uint64_t us);
  double bytes_per_second(std::uint32_t from, std::uint32_t to, topology::distance far) const;
  /// Nothing is faster than this.
  double fastest() const { return fastest_; }

 private:
  static std::uint64_t key(std::uint32_t from, std::uint32_t to) {
    return std::uint64_t{from} << 32U | to;
  }
  static void blend(double& known, double sample) { known += share * (sample - known); }

  // Assumed: shared memory, 25 Gbit/s in a rack, 10 in a zone, and slower beyond.
  std::array<double, distances> by_distance_{8e9, 3e9, 1.2e9, 5e8, 1e8};
  std::unordered_map<std::uint64_t, double> by_pair_;
  double fastest_ = 8e9;
};

}  // namespace troupe::router
