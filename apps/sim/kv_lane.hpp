#pragma once

#include "apps/sim/network.hpp"

#include "gpu/transfer/host_memory/host_fabric.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace troupe::sim {

/// How fast KV travels, and the memory through which it does.
class kv_network {
 public:
  kv_network(schedule& s, network& wires) : schedule_(s), wires_(wires) {}

  /// A worker's transport: memory of the fabric, over the ways of the simulated network, so that
  /// KV waits at a cut and a frozen process takes nothing. `sink` outlives it.
  std::unique_ptr<transfer::backend> join(process_id p, transfer::events& sink);
  /// Peers of the same host are not told: over shared memory nothing tells them.
  void died(process_id p);
  /// Called for each control message that arrives.
  std::function<void(std::span<const std::byte>)> on_control;
  /// The next pieces fail in transit.
  void fail_pieces(std::size_t count) { fabric_.fail_pieces(count); }

 private:
  friend class kv_lane;
  using address = std::vector<std::byte>;
  void pump_soon();
  process_id process_at(std::span<const std::byte> a) const;

  schedule& schedule_;
  network& wires_;
  transfer::host_fabric fabric_;
  std::map<address, process_id> members_;
  bool pump_due_ = false;
};

}  // namespace troupe::sim
