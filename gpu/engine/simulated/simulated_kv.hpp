#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::engine::simulated {

/// The KV of one token: the hash of the tokens before it, and with it. The rest of its bytes
/// follows from these.
struct token_kv {
  std::uint64_t before = 0;
  std::uint64_t hash = 0;
};

inline constexpr std::uint32_t token_kv_bytes_min = sizeof(token_kv);

std::uint64_t mix(std::uint64_t x);
/// The hash of a prefix from the hash of the one before.
std::uint64_t extend_hash(std::uint64_t before, token_id token);

std::size_t encoded_bytes(std::size_t tokens, std::uint32_t bytes_per_token);
/// Writes a header and every token's bytes; `out` has `encoded_bytes`.
void encode(std::span<const token_kv> tokens, position begin, std::uint64_t layout,
            std::uint32_t bytes_per_token, std::span<std::byte> out);
/// Errors: `kv_import_failed`: another layout, range or size, or a byte that is wrong.
expected<std::vector<token_kv>> decode(std::span<const std::byte> in, position begin, position end,
                                       std::uint64_t layout, std::uint32_t bytes_per_token);

}  // namespace troupe::engine::simulated
