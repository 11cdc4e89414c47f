#pragma once

#include "gpu/transfer/ucx/lane.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::transfer::ucx {

/// What `local_address()` carries: who the backend is (random, new in each process start) and how
/// each of its lanes is reached.
struct worker_address {
  std::uint64_t instance = 0;
  std::array<std::vector<std::byte>, lane_count> lanes;

  const std::vector<std::byte>& lane(lane_kind kind) const {
    return lanes[static_cast<std::size_t>(kind)];
  }
};

inline constexpr std::size_t address_bytes_max = 64U << 10U;

/// Format, little endian: "TKV1", instance u64, then for each lane a u32 length and its bytes
/// (length 0: no such lane).
std::vector<std::byte> encode(const worker_address& address);
/// Errors: `peer_unreachable`, naming what is wrong with the bytes.
expected<worker_address> decode_address(std::span<const std::byte> bytes);

}  // namespace troupe::transfer::ucx
