#include "gpu/engine/sampler.hpp"

#include "gpu/engine/logit_scan.hpp"
#include "gpu/engine/philox.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::engine {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Candidates that a constraint is asked about together when it has refused the favourite of a
/// greedy choice; four times as many in each further round.
constexpr std::size_t greedy_candidates_first = 64;

error garbage() {
  return {"garbage_output",
          "the engine computed logits that are no numbers; the request can go on elsewhere",
          {}};
}

error dead_end() {
  return {"constraint_dead_end",
          "no token of the vocabulary can continue the answer within its grammar",
          {}};
}

token_id draw_from(std::span<const std::pair<token_id, float>> candidates, float temperature,
                   double uniform) {
  const float highest = candidates.front().second;
  double sum = 0;
  for (const auto& [id, logit] : candidates) sum += std::exp((logit - highest) / temperature);
  const double target = uniform * sum;
  double passed = 0;
  for (const auto& [id, logit] : candidates) {
    passed += std::exp((logit - highest) / temperature);
    if (passed > target) return id;
  }
  return candidates.back().first;
}

}  // namespace

sampler::sampler(const sampling& how, std::uint16_t choice, std::span<const token_id> banned)
    : how_(how), choice_(choice), banned_(banned.begin(), banned.end()) {
  for (const auto& [id, bias] : how.logit_bias) adjustments_[id].bias += bias;
}

bool sampler::bans(token_id token) const {
  return std::find(banned_.begin(), banned_.end(), token) != banned_.end();
}

void sampler::accept(token_id token) {
  if (how_.presence_penalty != 0 || how_.frequency_penalty != 0) ++adjustments_[token].generated;
}

std::span<const float> sampler::adjusted(std::span<const float> logits,
                                         sampler_scratch& scratch) const {
  if (adjustments_.empty() && banned_.empty()) return logits;
  scratch.logits.assign(logits.begin(), logits.end());
  for (const auto& [id, a] : adjustments_) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    auto& logit = scratch.logits[static_cast<std::size_t>(id)];
    logit += a.bias;
    if (a.generated > 0)
      logit -= how_.presence_penalty + how_.frequency_penalty * static_cast<float>(a.generated);
  }
  for (const auto id : banned_)
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size())
      scratch.logits[static_cast<std::size_t>(id)] = minus_infinity;
  return scratch.logits;
}

expected<token_id> sampler::choose(std::span<const float> raw, std::uint32_t index,
                                   text::constraint* limits, sampler_scratch& scratch) const {
  const auto found = extent(raw);
  if (!found.sane) return garbage();
  if (takes_highest() && limits == nullptr && !bans(found.first)) return found.first;
  const auto logits = adjusted(raw, scratch);
  if (how_.temperature <= 0) return choose_highest(logits, limits, scratch);
  if (logits.data() != raw.data() && !extent(logits).sane) return dead_end();  // all is banned
  const auto random = philox4x32(
      {index, choice_, 0, 0},
      {static_cast<std::uint32_t>(how_.seed), static_cast<std::uint32_t>(how_.seed >> 32U)});
  const auto favourite = draw(logits, unit_interval(random[0], random[1]), scratch);
  if (limits == nullptr || limits->allows(favourite)) return favourite;

  gather(logits, minus_infinity, scratch.candidates);
  limits->mask(scratch.candidates);
  scratch.logits.assign(
      logits.size(), minus_infinity);  // `logits` may be this very memory; it isn't read any more
  for (const auto& [id, logit] : scratch.candidates)
    scratch.logits[static_cast<std::size_t>(id)] = logit;
  if (!extent(scratch.logits).sane) return dead_end();
  return draw(scratch.logits, unit_interval(random[2], random[3]), scratch);
}

expected<token_id> sampler::choose_highest(std::span<const float> logits, text::constraint* limits,
                                           sampler_scratch& scratch) const {
  const auto found = extent(logits);
  if (!found.sane) return dead_end();
  const auto favourite = found.first;
  if (limits == nullptr || limits->allows(favourite)) return favourite;
  for (auto count = greedy_candidates_first;; count *= 4) {
    gather_highest(logits, found.highest, count, scratch.candidates);
    const bool all = scratch.candidates.size() < count || count >= logits.size();
    limits->mask(scratch.candidates);
    for (const auto& [id, logit] : scratch.candidates)
      if (logit > minus_infinity) return id;
    if (all) return dead_end();
  }
}

token_id sampler::draw(std::span<const float> logits, double uniform,
                       sampler_scratch& scratch) const {
  const float highest = extent(logits).highest;
  auto& kept = scratch.candidates;
  if (how_.top_k > 0) {
    gather_highest(logits, highest, static_cast<std::size_t>(how_.top_k), kept);
  } else if (how_.min_p > 0) {
    gather(logits, highest + std::log(std::min(how_.min_p, 1.0F)), kept);
    sort_by_likelihood(kept);
  } else if (how_.top_p >= 1) {
    return draw_by_mass(logits, highest, how_.temperature, uniform);
  } else {
    // Only top_p: as many of the likeliest as it takes; the sum is over all.
    const double wanted = std::max(0.0F, how_.top_p) * mass(logits, highest, 1);
    for (std::size_t count = 64;; count *= 4) {
      gather_highest(logits, highest, count, kept);
      double sum = 0;
      std::size_t n = 0;
      while (n < kept.size() && (n == 0 || sum < wanted))
        sum += std::exp(kept[n++].second - highest);
      if (sum < wanted && kept.size() == count) continue;
      kept.resize(n);
      return draw_from(kept, how_.temperature, uniform);
    }
  }
  if (how_.min_p > 0) {
    const float threshold = highest + std::log(std::min(how_.min_p, 1.0F));
    const auto end = std::find_if(kept.begin(), kept.end(),
                                  [&](const auto& c) { return c.second < threshold; });
    kept.erase(std::max(end, kept.begin() + 1), kept.end());
  }
  if (how_.top_p < 1) {
    double sum = 0;
    for (const auto& [id, logit] : kept) sum += std::exp(logit - highest);
    const double wanted = std::max(0.0F, how_.top_p) * sum;
    double passed = 0;
    std::size_t n = 0;
    while (n < kept.size() && (n == 0 || passed < wanted))
      passed += std::exp(kept[n++].second - highest);
    kept.resize(n);
  }
  return draw_from(kept, how_.temperature, uniform);
}

token_logprob logprob_of(std::span<const float> logits, token_id chosen, std::uint8_t top,
                         const std::function<std::string(token_id)>& piece,
                         sampler_scratch& scratch) {
  const float highest = extent(logits).highest;
  const double log_sum = std::log(mass(logits, highest, 1));
  // What has no probability at all is reported as OpenAI reports it: a finite number that JSON can
  // carry.
  constexpr float logprob_min = -9999;
  const auto entry = [&](token_id id, float logit) {
    return candidate{
        id, piece(id),
        std::max(logprob_min, static_cast<float>(static_cast<double>(logit - highest) - log_sum))};
  };
  token_logprob out;
  out.chosen = entry(chosen, logits[static_cast<std::size_t>(chosen)]);
  if (top > 0) {
    gather_highest(logits, highest, top, scratch.candidates);
    for (const auto& [id, logit] : scratch.candidates) out.top.push_back(entry(id, logit));
  }
  return out;
}

}  // namespace troupe::engine
