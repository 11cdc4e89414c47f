#pragma once

#include "gpu/engine/types.hpp"

#include <span>
#include <utility>
#include <vector>

namespace troupe::engine {

// Sweeps over a vocabulary's logits, each linear and without a sort. They are what a step's host
// time consists of: this file's source is compiled with -O3 always.

struct logit_extent {
  float highest = 0;
  token_id first = 0;  ///< the lowest id that has it
  bool sane = false;   ///< no NaN, no +infinity, and at least one that isn't -infinity
};

logit_extent extent(std::span<const float> logits);

/// Tokens less far below a logit than this carry all of the probability that a float can show: 2^18
/// of them together weigh e^-32 · 2^18 < 4e-9.
inline constexpr float negligible_below = 32;

/// Sum of exp((logit - highest) / temperature), to about seven digits; what is negligible counts as
/// nothing.
double mass(std::span<const float> logits, float highest, float temperature);

/// The token at which the running mass, in order of ids, passes the share `uniform` (in [0, 1)) of
/// the whole; never a negligible one.
token_id draw_by_mass(std::span<const float> logits, float highest, float temperature,
                      double uniform);

/// Tokens with logit ≥ threshold, in order of ids; -infinity never.
void gather(std::span<const float> logits, float threshold,
            std::vector<std::pair<token_id, float>>& out);

/// Likeliest first, the lowest id first on ties.
void sort_by_likelihood(std::vector<std::pair<token_id, float>>& candidates);

/// The `count` likeliest tokens (all, if there are fewer), likeliest first, the lowest id first on
/// ties. -infinity never.
void gather_highest(std::span<const float> logits, float highest, std::size_t count,
                    std::vector<std::pair<token_id, float>>& out);

}  // namespace troupe::engine
