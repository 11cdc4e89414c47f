#pragma once

#include "actors/request/settlement.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <unordered_map>

namespace troupe::request {

/// Both ledgers by model, for Prometheus. One actor's.
class cost_metrics {
 public:
  explicit cost_metrics(std::shared_ptr<prometheus::Registry> registry);

  /// `seconds_per_mu`: of the price that it was settled at.
  void settled(const std::string& model, const settlement& s, double seconds_per_mu);

 private:
  /// Of one model; looking them up by their labels would take longer than the rest.
  struct series {
    prometheus::Counter* tenant_mu;
    prometheus::Counter* physical_mu;
    prometheus::Counter* guessed;
    prometheus::Counter* prefill_seconds;
    prometheus::Counter* decode_seconds;
    prometheus::Counter* transfer_seconds;
    prometheus::Histogram* request_mu;
    prometheus::Gauge* mu_seconds;
  };
  series& of(const std::string& model);

  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& units_;
  prometheus::Family<prometheus::Counter>& guessed_;
  prometheus::Family<prometheus::Counter>& seconds_;
  prometheus::Family<prometheus::Histogram>& request_mu_;
  prometheus::Family<prometheus::Gauge>& mu_seconds_;
  std::unordered_map<std::string, series> by_model_;
};

}  // namespace troupe::request
