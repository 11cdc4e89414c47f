#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::engine {

inline constexpr std::uint32_t kv_format_version = 1;

/// In front of every exported range of KV: what it is, so that nothing wrong ever reaches the
/// model's memory. Little-endian, as all of KV.
struct kv_header {
  static constexpr std::uint32_t magic_value = 0x564B5254;  // "TRKV"

  std::uint32_t magic = magic_value;
  std::uint32_t version = kv_format_version;
  std::uint64_t layout = 0;  ///< digest of model, types and layers
  std::uint32_t begin = 0;   ///< positions
  std::uint32_t end = 0;
  std::uint64_t bytes = 0;     ///< that follow
  std::uint64_t checksum = 0;  ///< XXH3 of them
};
static_assert(sizeof(kv_header) == 40);

/// Writes the header of a payload that is in place behind it.
void seal(std::span<std::byte> out, std::uint64_t layout, position begin, position end,
          std::size_t payload_bytes);

/// The payload. Errors: `kv_import_failed`, saying what doesn't match.
expected<std::span<const std::byte>> unseal(std::span<const std::byte> in, std::uint64_t layout,
                                            position begin, position end,
                                            std::size_t payload_bytes);

}  // namespace troupe::engine
