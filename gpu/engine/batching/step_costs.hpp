#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/non_negative_fit.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::engine {

/// One sequence's part of a forward pass.
struct step_part {
  position from = 0;  ///< where its tokens begin
  position tokens = 0;
  bool decode = false;  ///< one token, with logits
};

/// Tokens before each of the part's tokens, summed up.
inline double context_of(const step_part& p) {
  return static_cast<double>(p.tokens) * (p.from + (p.tokens - 1) / 2.0);
}

/// Shares a pass's time among its parts: prefill tokens by their count (and by what is before
/// them), the fixed part of a decode step equally, the rest of a decode by KV length. How large
/// each of these is it learns from the passes themselves: one of nothing but decodes tells what a
/// step costs, one with a chunk of prompt what a prompt token adds. Shares always sum up to the
/// pass's time. A value type; pure.
class step_costs {
 public:
  /// Of each part, in order.
  std::vector<std::chrono::nanoseconds> divide(std::span<const step_part> parts,
                                               std::chrono::nanoseconds took) const;
  /// Of a pass that was computed to its end.
  void learn(std::span<const step_part> parts, std::chrono::nanoseconds took);

 private:
  /// What an observation weighs after each later one: a few hundred passes are remembered.
  static constexpr double memory = 0.997;
  static constexpr std::uint32_t passes_per_fit = 16;

  enum feature : std::uint8_t {
    decode_step,   ///< once in a pass that decodes
    prefill_step,  ///< once in one that does not
    prefill_token,
    prefill_context,  ///< per token and token before it
    decode_token,
    decode_context,
    features
  };
  using fit = non_negative_fit<features>;

  static fit::row describe(std::span<const step_part> parts);

  fit seen_;
  /// Before anything was seen a token is a token.
  fit::row seconds_{0, 0, 1, 0, 1, 0};
  std::uint32_t lessons_ = 0;
};

}  // namespace troupe::engine
