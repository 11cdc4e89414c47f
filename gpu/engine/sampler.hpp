#pragma once

#include "gpu/engine/types.hpp"
#include "gpu/text/text_model.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::engine {

/// Memory that samplers share, so that none of them holds a vocabulary's worth of floats. One
/// thread.
struct sampler_scratch {
  std::vector<float> logits;
  std::vector<std::pair<token_id, float>> candidates;
};

/// Chooses the tokens of one choice of one job.
///
/// Order: logit_bias and penalties (over generated tokens), the constraint, top_k, min_p, top_p,
/// temperature last; the filters look at untempered probabilities. The constraint is asked about
/// the favourite first and masks all candidates only if it refuses: the draw after a refusal is
/// independent, so the distribution is that of masking first. Temperature 0 takes the highest
/// logit, the lowest id on ties. The draw for token i is a function of (seed, choice, i) alone.
/// Engine thread.
class sampler {
 public:
  /// `banned`: never chosen (end tokens of a job that ignores them).
  sampler(const sampling& how, std::uint16_t choice, std::span<const token_id> banned);

  /// Whether `choose` without a constraint is just the highest logit, unless that is a banned
  /// token.
  bool takes_highest() const { return how_.temperature <= 0 && adjustments_.empty(); }
  bool bans(token_id token) const;

  /// The token with index `index` in the answer. Errors: `garbage_output` (a logit that is no
  /// number, or nothing to choose from), `constraint_dead_end`.
  expected<token_id> choose(std::span<const float> logits, std::uint32_t index,
                            text::constraint* limits, sampler_scratch& scratch) const;
  /// The token became part of the answer (chosen, or replayed after a failover).
  void accept(token_id token);

 private:
  struct adjustment {
    float bias = 0;
    std::uint32_t generated = 0;
  };

  std::span<const float> adjusted(std::span<const float> logits, sampler_scratch& scratch) const;
  expected<token_id> choose_highest(std::span<const float> logits, text::constraint* limits,
                                    sampler_scratch& scratch) const;
  token_id draw(std::span<const float> logits, double uniform, sampler_scratch& scratch) const;

  sampling how_;
  std::uint16_t choice_;
  std::vector<token_id> banned_;
  std::unordered_map<token_id, adjustment> adjustments_;
};

/// Log probabilities under the model's own logits (no bias, penalty or temperature): of the chosen
/// token and of the `top` likeliest. `piece` gives a token's bytes.
token_logprob logprob_of(std::span<const float> logits, token_id chosen, std::uint8_t top,
                         const std::function<std::string(token_id)>& piece,
                         sampler_scratch& scratch);

}  // namespace troupe::engine
