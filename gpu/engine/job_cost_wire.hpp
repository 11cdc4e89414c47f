#pragma once

#include "gpu/engine/job_cost.hpp"
#include "messages/job.capnp.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace troupe::engine {

inline void write(msg::JobCost::Builder out, const job_cost& in) {
  const auto ns = [](std::chrono::nanoseconds t) {
    return static_cast<std::uint64_t>(std::max(t, std::chrono::nanoseconds(0)).count());
  };
  out.setPrefillNs(ns(in.prefill));
  out.setDecodeNs(ns(in.decode));
  out.setTransferNs(ns(in.transfer));
  out.setComputed(in.computed);
  out.setSampled(in.sampled);
  out.setComputedContext(in.computed_context);
  out.setSampledContext(in.sampled_context);
  out.setStepShares(in.step_shares);
}

/// What cannot be (a negative sum, no number, years of one job) counts as nothing: books are added
/// up of these.
inline job_cost read(msg::JobCost::Reader in) {
  constexpr std::uint64_t year_ns = 365ULL * 24 * 3'600 * 1'000'000'000;
  const auto ns = [](std::uint64_t t) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(t > year_ns ? 0 : t));
  };
  const auto sum = [](double x) { return std::isfinite(x) && x > 0 ? x : 0; };
  job_cost out;
  out.prefill = ns(in.getPrefillNs());
  out.decode = ns(in.getDecodeNs());
  out.transfer = ns(in.getTransferNs());
  out.computed = in.getComputed();
  out.sampled = in.getSampled();
  out.computed_context = sum(in.getComputedContext());
  out.sampled_context = sum(in.getSampledContext());
  out.step_shares = sum(in.getStepShares());
  return out;
}

}  // namespace troupe::engine
