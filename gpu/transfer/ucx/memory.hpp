#pragma once

#include "gpu/transfer/ucx/lane.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace troupe::transfer::ucx {

/// One mapping, registered with every lane. Shared by its region and by every operation on it, so
/// that memory that UCX may still read or write is never unmapped.
class registered_memory {
 public:
  /// Aligned for huge pages, and zeroed. Errors: `out_of_memory`, `registration_failed`.
  static expected<std::shared_ptr<registered_memory>> map(std::size_t bytes,
                                                          std::span<const shared_context> contexts);
  ~registered_memory();
  registered_memory(const registered_memory&) = delete;
  registered_memory& operator=(const registered_memory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  ucp_mem_h handle(lane_kind kind) const { return handles_[static_cast<std::size_t>(kind)]; }

 private:
  registered_memory() = default;

  std::span<std::byte> bytes_;
  std::span<std::byte> mapped_;
  std::array<shared_context, lane_count> contexts_;
  std::array<ucp_mem_h, lane_count> handles_{};
};

/// Finds the registration of a span. Thread-safe.
class memory_table {
 public:
  void add(const std::shared_ptr<registered_memory>& memory);
  void remove(const registered_memory& memory);
  /// Null when the span doesn't lie in one registered mapping.
  std::shared_ptr<registered_memory> find(std::span<const std::byte> bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<registered_memory>> by_begin_;
};

}  // namespace troupe::transfer::ucx
