#pragma once

#include "messages/base/expected.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe::capacity {

/// What a request asks of an engine, in tokens. Several choices share the prompt: add
/// `cost_model::decode_mu` for each.
struct request_shape {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;  ///< of the prompt, not computed again
  std::uint32_t output_tokens = 0;
  std::uint32_t image_tokens = 0;  ///< of the prompt, that an encoder makes from images

  friend bool operator==(const request_shape&, const request_shape&) = default;
};

/// One model unit (MU): this request, with nothing cached.
inline constexpr request_shape reference_request{3'500, 0, 300, 0};

/// Busy seconds that an engine spends, by what it does. All at least 0.
struct coefficients {
  double alpha = 0;      ///< per prompt token that is computed
  double alpha2 = 0;     ///< per (end² − begin²) of a computed range [begin, end) of the prompt
  double beta = 0;       ///< per sampled token
  double beta_step = 0;  ///< per decode step, borne in equal parts by all that are in it
  double gamma = 0;      ///< per sampled token and token of context before it
  double image = 0;      ///< per image token, beyond what it costs as a prompt token

  friend bool operator==(const coefficients&, const coefficients&) = default;
};

/// Where coefficients come from.
enum class provenance : std::uint8_t {
  calibrated,  ///< a file by `troupe bench calibrate`
  measured,    ///< the speeds that the engine showed; knows nothing of context lengths and batches
  assumed,     ///< nothing was measured yet: the order of magnitude at best
};
std::string_view to_string(provenance p);

/// What requests to one model cost on one device class. A value type; pure.
///
///   seconds(r) = α·(n_in − n_cached) + α₂·(n_in² − n_cached²) + image·n_image
///              + (β + β_step / batch)·n_out + γ·n_out·(n_in + n_out / 2)
///   MU(r)      = seconds(r) / seconds(reference_request)
///
/// so that `reference_request` is 1 MU on every class, and `seconds_per_mu` tells classes apart.
/// A decode step costs about as much for one stream as for several, hence the batch: MU are counted
/// at the `usual_batch`, or a request would cost its tenant what others happen to do; seconds can
/// be had for any batch. After Databricks, "Reliable LLM Inference at Scale" (2026), whose formula
/// is not published.
class cost_model {
 public:
  struct options {
    std::string device_class;  ///< empty: unknown
    double usual_batch = 1;    ///< streams in a decode step
    provenance origin = provenance::calibrated;
    std::string source;        ///< file or engine, for people
    double mu_per_minute = 0;  ///< of one engine within its latency objective; 0: not known

    friend bool operator==(const options&, const options&) = default;
  };

  /// Errors: `bad_cost_model` when a coefficient is negative or no number, when the reference
  /// request would be free, or when the usual batch is below 1.
  static expected<cost_model> make(const coefficients& seconds, options about);

  /// From an engine's measured speeds; `decode` is that of one stream. What is 0 wasn't measured
  /// and is assumed. `origin` is `measured` when both were.
  static cost_model from_speeds(double prefill_tokens_per_second, double decode_tokens_per_second,
                                std::string device_class, std::string source);
  /// Where nothing is known.
  static cost_model assumed() { return from_speeds(0, 0, {}, {}); }

  /// For the prompt's computed part [cached, prompt).
  double prefill_mu(std::uint32_t prompt, std::uint32_t cached) const {
    return prefill_seconds(prompt, cached) / seconds_per_mu_;
  }
  /// For `output` tokens that follow a context of `prompt`.
  double decode_mu(std::uint32_t prompt, std::uint32_t output) const {
    return decode_seconds(prompt, output, about_.usual_batch) / seconds_per_mu_;
  }
  double mu(const request_shape& r) const {
    return seconds(r, about_.usual_batch) / seconds_per_mu_;
  }

  double prefill_seconds(std::uint32_t prompt, std::uint32_t cached) const;
  /// `batch`: streams in the same steps, this one included.
  double decode_seconds(std::uint32_t prompt, std::uint32_t output, double batch) const;
  double seconds(const request_shape& r, double batch) const;

  /// Busy seconds of this device class for one MU.
  double seconds_per_mu() const { return seconds_per_mu_; }
  const coefficients& in_seconds() const { return seconds_; }
  const options& about() const { return about_; }
  provenance origin() const { return about_.origin; }

  friend bool operator==(const cost_model&, const cost_model&) = default;

 private:
  cost_model(const coefficients& seconds, options about);

  coefficients seconds_;
  options about_;
  double seconds_per_mu_ = 1;
};

/// What one attempt at a request did, finished or not.
struct attempt_work {
  std::uint32_t cached_tokens = 0;  ///< found in a cache, or moved here with the stream
  std::uint32_t computed_to = 0;    ///< positions [cached, computed_to) were computed
  /// All tokens of the prompt, and of the answer so far, that were computed: what a pre-emption
  /// has computed again counts again.
  std::uint32_t computed_tokens = 0;
  double computed_context = 0;      ///< sum of what was before each of them
  std::uint32_t output_tokens = 0;  ///< sampled by all choices, also what nobody received any more
  double sampled_context = 0;       ///< sum of what was before each of them
  std::uint32_t image_tokens = 0;   ///< encoded by this attempt
  double transfer_seconds = 0;      ///< engines' time for KV that was sent and taken in
};

/// What a tenant pays for: each position of the prompt once, where it was computed at all, and each
/// token of the answer that was delivered once. Work that a failover repeats is free, and so are
/// the first `cached_tokens`, which the client was told were cached: also where a later attempt ran
/// on an engine without them. `prompt_tokens` is the client's prompt alone.
double tenant_charge_mu(const cost_model& model, std::uint32_t prompt_tokens,
                        std::uint32_t cached_tokens, std::uint32_t delivered_tokens,
                        std::span<const attempt_work> attempts);

/// What the engines had to do: everything, repetitions and transfers included. Routing and capacity
/// count this. By sums over tokens, which hold for any number of choices and of ranges.
double physical_mu(const cost_model& model, std::span<const attempt_work> attempts);

}  // namespace troupe::capacity
