#pragma once

#include <cstddef>

namespace troupe::msg {

/// Bytes of canonical prompt in one block of a chain. The gateway cuts prompts by it, and routers
/// estimate by it how much of a prompt a worker has; a shorter rest at the end makes no block, so
/// that boundary tokens are never claimed.
inline constexpr std::size_t chain_block_bytes = 512;

}  // namespace troupe::msg
