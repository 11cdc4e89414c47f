#pragma once

#include "gpu/engine/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::engine {

/// What one sequence would like to have computed next.
struct sequence_work {
  position prefill = 0;  ///< tokens to compute without sampling; 0: it decodes
};

/// What a batch computes of it.
struct batch_share {
  std::size_t sequence = 0;  ///< index into the works
  position tokens = 0;
  bool decode = false;
};

/// Who gets into the next batch: one token for every sequence that decodes, then prefill chunks in
/// the order given (it is by rank), up to `step_tokens`. A chunk is as large as the room, so that a
/// job alone always has the same chunks. When more sequences decode than fit, they take turns:
/// `rotation` counts the steps. Pure.
std::vector<batch_share> compose_batch(std::span<const sequence_work> works,
                                       std::uint32_t step_tokens, std::uint64_t rotation);

}  // namespace troupe::engine
