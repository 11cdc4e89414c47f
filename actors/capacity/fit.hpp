#pragma once

#include "actors/capacity/cost_model.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::capacity {

/// A request as its engines accounted for it, over all that it did there.
struct measured_request {
  request_shape shape;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double computed_tokens = 0;
  double computed_context = 0;  ///< sum of the tokens before each computed one
  double sampled_tokens = 0;
  double sampled_context = 0;  ///< sum of the KV length of each sampled one
  double step_shares = 0;      ///< decode steps, each divided by the streams in it

  double seconds() const { return prefill_seconds + decode_seconds; }
};

/// Coefficients that explain what was measured, none below 0: least squares of relative errors,
/// apart for prefill and decode. Errors: `nothing_measured` when there is no prefill or no decode
/// with any time among them.
expected<coefficients> fit_costs(std::span<const measured_request> all);

/// Streams in a decode step, as the one that samples a token sees it: tokens ÷ their shares of
/// steps. 1 where nothing was sampled.
double usual_batch_of(std::span<const measured_request> all);

/// A guess beside the truth, seconds.
struct prediction {
  double predicted = 0;
  double measured = 0;
};

/// How good guesses are: relative errors, parts of one.
struct error_summary {
  std::size_t count = 0;
  double median = 0;
  double p90 = 0;
  double bias = 0;  ///< of the sum of all; above 0: predicted too high
};

/// What was measured as nothing is left out.
error_summary judge(std::span<const prediction> all);

/// What a model says of requests whose decode steps had so many streams in them, `usual_batch_of`
/// the workload, from their lengths alone.
std::vector<prediction> predict(const cost_model& model, std::span<const measured_request> all,
                                double batch);

}  // namespace troupe::capacity
