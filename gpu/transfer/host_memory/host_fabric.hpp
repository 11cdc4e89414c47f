#pragma once

#include "gpu/transfer/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace troupe::transfer {

/// The network of host-memory backends: several workers in one process, for tests, with faults on
/// demand. Nothing happens by itself: `pump` does what a progress thread would, on the caller's
/// thread and in the order of posting, so that a run is repeatable. Thread-safe.
class host_fabric {
 public:
  host_fabric();
  ~host_fabric();
  host_fabric(const host_fabric&) = delete;
  host_fabric& operator=(const host_fabric&) = delete;

  /// `sink` outlives the backend, the backend may outlive the fabric.
  std::unique_ptr<backend> join(events& sink);

  /// Runs at most `steps` things that are due; how many there were. Events and completions are
  /// called from here.
  std::size_t pump(std::size_t steps = SIZE_MAX);
  /// Pumps on a thread of its own from now on, until the fabric ends.
  void pump_in_background();

  /// The worker of this address dies: everyone connected to it is told, unless `silently`; then
  /// only `disconnect(certainly_dead)` ends what was under way.
  void kill(std::span<const std::byte> address, bool silently);
  /// The same, where it depends on the peer, of which the address is given.
  void kill(std::span<const std::byte> address,
            const std::function<bool(std::span<const std::byte> peer)>& silently);
  /// The next pieces fail in transit at both ends.
  void fail_pieces(std::size_t count);

 private:
  friend class host_backend;
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace troupe::transfer
