#include "actors/capacity/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace troupe::capacity {

namespace {

// A small model on a small GPU, or a tiny one on CPUs: only the ratio matters much, since the
// seconds are corrected as soon as anything was measured.
constexpr double assumed_prefill_tokens_per_second = 2'000;
constexpr double assumed_decode_tokens_per_second = 40;

/// end² − begin² without overflow or cancellation.
double squares_between(std::uint32_t begin, std::uint32_t end) {
  return (static_cast<double>(end) - begin) * (static_cast<double>(end) + begin);
}

}  // namespace

std::string_view to_string(provenance p) {
  switch (p) {
  case provenance::calibrated:
    return "calibrated";
  case provenance::measured:
    return "measured";
  case provenance::assumed:
    return "assumed";
  }
  return "unknown";
}

cost_model::cost_model(const coefficients& seconds, options about)
    : seconds_(seconds), about_(std::move(about)) {
  seconds_per_mu_ = this->seconds(reference_request, about_.usual_batch);
}

expected<cost_model> cost_model::make(const coefficients& seconds, options about) {
  const std::pair<const char*, double> named[] = {
      {"alpha", seconds.alpha},         {"alpha2", seconds.alpha2}, {"beta", seconds.beta},
      {"beta_step", seconds.beta_step}, {"gamma", seconds.gamma},   {"image", seconds.image}};
  for (const auto& [name, value] : named)
    if (!std::isfinite(value) || value < 0)
      return error{"bad_cost_model",
                   fmt::format("{} is {}, but no work takes less than no time", name, value), name};
  if (!std::isfinite(about.usual_batch) || about.usual_batch < 1)
    return error{"bad_cost_model",
                 fmt::format("usual_batch is {}, but a step has at least one stream in it",
                             about.usual_batch),
                 "usual_batch"};
  cost_model model(seconds, std::move(about));
  if (!std::isfinite(model.seconds_per_mu_) || model.seconds_per_mu_ <= 0)
    return error{"bad_cost_model",
                 fmt::format("a request of {} tokens in and {} out would take {} s",
                             reference_request.prompt_tokens, reference_request.output_tokens,
                             model.seconds_per_mu_),
                 {}};
  return model;
}

cost_model cost_model::from_speeds(double prefill_tokens_per_second,
                                   double decode_tokens_per_second, std::string device_class,
                                   std::string source) {
  const auto is_speed = [](double v) { return std::isfinite(v) && v > 0; };
  const bool both = is_speed(prefill_tokens_per_second) && is_speed(decode_tokens_per_second);
  constexpr double ratio = assumed_prefill_tokens_per_second / assumed_decode_tokens_per_second;
  if (!is_speed(prefill_tokens_per_second))
    prefill_tokens_per_second = is_speed(decode_tokens_per_second)
                                    ? decode_tokens_per_second * ratio
                                    : assumed_prefill_tokens_per_second;
  if (!is_speed(decode_tokens_per_second))
    decode_tokens_per_second = prefill_tokens_per_second / ratio;
  coefficients seconds;
  seconds.alpha = 1 / prefill_tokens_per_second;
  seconds.beta = 1 / decode_tokens_per_second;
  return {seconds,
          {std::move(device_class), 1, both ? provenance::measured : provenance::assumed,
           std::move(source), 0}};
}

double cost_model::prefill_seconds(std::uint32_t prompt, std::uint32_t cached) const {
  cached = std::min(cached, prompt);
  return seconds_.alpha * (prompt - cached) + seconds_.alpha2 * squares_between(cached, prompt);
}

double cost_model::decode_seconds(std::uint32_t prompt, std::uint32_t output, double batch) const {
  const double out = output;
  return (seconds_.beta + seconds_.beta_step / std::max(1.0, batch)) * out +
         seconds_.gamma * out * (prompt + out / 2);
}

double cost_model::seconds(const request_shape& r, double batch) const {
  return prefill_seconds(r.prompt_tokens, r.cached_tokens) + seconds_.image * r.image_tokens +
         decode_seconds(r.prompt_tokens, r.output_tokens, batch);
}

double tenant_charge_mu(const cost_model& model, std::uint32_t prompt_tokens,
                        std::uint32_t cached_tokens, std::uint32_t delivered_tokens,
                        std::span<const attempt_work> attempts) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> computed;
  std::uint32_t images = 0;
  for (const auto& a : attempts) {
    computed.emplace_back(std::max(a.cached_tokens, cached_tokens),
                          std::min(a.computed_to, prompt_tokens));
    images = std::max(images, a.image_tokens);
  }
  std::sort(computed.begin(), computed.end());
  double mu = model.in_seconds().image * images / model.seconds_per_mu();
  std::uint32_t paid_to = 0;
  for (const auto& [from, to] : computed) {
    if (to <= std::max(from, paid_to)) continue;
    mu += model.prefill_mu(to, std::max(from, paid_to));
    paid_to = to;
  }
  return mu + model.decode_mu(prompt_tokens, delivered_tokens);
}

double physical_mu(const cost_model& model, std::span<const attempt_work> attempts) {
  const auto& per = model.in_seconds();
  const auto decode_token = per.beta + per.beta_step / model.about().usual_batch;
  double seconds = 0;
  for (const auto& a : attempts) {
    // (p + 1)² − p² = 2·p + 1 of each position p.
    seconds += per.alpha * a.computed_tokens +
               per.alpha2 * (2 * a.computed_context + a.computed_tokens) +
               decode_token * a.output_tokens + per.gamma * a.sampled_context +
               per.image * a.image_tokens + a.transfer_seconds;
  }
  return seconds / model.seconds_per_mu();
}

}  // namespace troupe::capacity
