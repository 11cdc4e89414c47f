#pragma once

#include "gpu/engine/engine.hpp"
#include "gpu/transfer/backend.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace troupe::transfer {

/// A fixed number of equal buffers in one registered region, handed out as `engine::piece_buffer`s
/// that come back when they are destroyed. Thread-safe.
///
/// Quarantine is ownership: whoever passes a buffer to the transport keeps it in the completion,
/// and the transport calls that only when no peer can touch the buffer any more. Buffers may
/// outlive the pool and even the backend.
class buffer_pool {
 public:
  /// Buffers start at multiples of 4 KiB. Errors: as `backend::allocate`.
  static expected<std::unique_ptr<buffer_pool>> make(backend& transport, std::size_t buffer_bytes,
                                                     std::size_t count);

  /// Null when none is free, or `size` is more than a buffer has.
  std::unique_ptr<engine::piece_buffer> acquire(std::size_t size);

  std::size_t buffer_bytes() const;
  std::size_t count() const;
  std::size_t free() const;

  /// Called on whichever thread returns a buffer, without a lock held: be quick. Set before the
  /// first `acquire`.
  void on_free(std::function<void()> call);

 private:
  struct state;
  class slot;
  explicit buffer_pool(std::shared_ptr<state> s) : state_(std::move(s)) {}

  std::shared_ptr<state> state_;
};

}  // namespace troupe::transfer
