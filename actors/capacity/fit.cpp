#include "actors/capacity/fit.hpp"

#include "messages/base/non_negative_fit.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::capacity {

expected<coefficients> fit_costs(std::span<const measured_request> all) {
  non_negative_fit<2> prefill;
  non_negative_fit<3> decode;
  bool has_prefill = false, has_decode = false;
  for (const auto& r : all) {
    if (r.computed_tokens > 0 && r.prefill_seconds > 0) {
      const auto y = r.prefill_seconds;
      // The sum of what is before each token of [b, e) is (e² − b² − (e − b)) / 2.
      prefill.add({r.computed_tokens, 2 * r.computed_context + r.computed_tokens}, y, 1 / (y * y));
      has_prefill = true;
    }
    if (r.sampled_tokens > 0 && r.decode_seconds > 0) {
      const auto y = r.decode_seconds;
      decode.add({r.sampled_tokens, r.step_shares, r.sampled_context}, y, 1 / (y * y));
      has_decode = true;
    }
  }
  if (!has_prefill || !has_decode)
    return error{"nothing_measured", has_prefill ? "no request has a measured cost of its answer"
                                                 : "no request has a measured cost of its prompt"};
  const auto p = prefill.solve();
  const auto d = decode.solve();
  return coefficients{p[0], p[1], d[0], d[1], d[2], 0};
}

double usual_batch_of(std::span<const measured_request> all) {
  double tokens = 0, shares = 0;
  for (const auto& r : all) {
    tokens += r.sampled_tokens;
    shares += r.step_shares;
  }
  return shares > 0 ? std::max(1.0, tokens / shares) : 1;
}

error_summary judge(std::span<const prediction> all) {
  std::vector<double> errors;
  double predicted = 0, measured = 0;
  for (const auto& x : all) {
    if (!(x.measured > 0)) continue;
    errors.push_back(std::abs(x.predicted - x.measured) / x.measured);
    predicted += x.predicted;
    measured += x.measured;
  }
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double q) {
    const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(errors.size())));
    return errors[std::max<std::size_t>(rank, 1) - 1];
  };
  return {errors.size(), at(0.5), at(0.9), predicted / measured - 1};
}

std::vector<prediction> predict(const cost_model& model, std::span<const measured_request> all,
                                double batch) {
  std::vector<prediction> out;
  for (const auto& r : all) out.push_back({model.seconds(r.shape, batch), r.seconds()});
  return out;
}

}  // namespace troupe::capacity
