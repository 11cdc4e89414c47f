#pragma once

#include "actors/admission/account.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::request {

/// What tenants do with models at this gateway, for Prometheus. One actor's.
class tenant_metrics {
 public:
  explicit tenant_metrics(std::shared_ptr<prometheus::Registry> registry);

  void admitted(const std::string& tenant, const std::string& model,
                std::chrono::duration<double> waited);
  void refused(const std::string& tenant, const std::string& model, const std::string& reason);
  /// Its client went away while it waited.
  void left(const std::string& tenant, const std::string& model);
  void charged(const std::string& tenant, const std::string& model, double mu);
  /// What runs and waits now: nothing of whoever is not among them.
  void show(const std::vector<troupe::admission::tenant_account>& all);

 private:
  struct series {
    prometheus::Counter* admitted;
    prometheus::Counter* charged;
    prometheus::Histogram* waited;
    prometheus::Gauge* open;
    prometheus::Gauge* waiting;
    prometheus::Gauge* reserved;
    prometheus::Gauge* isolated;
  };
  series& of(const std::string& tenant, const std::string& model);

  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& admitted_;
  prometheus::Family<prometheus::Counter>& refused_;
  prometheus::Family<prometheus::Counter>& left_;
  prometheus::Family<prometheus::Counter>& charged_;
  prometheus::Family<prometheus::Histogram>& waited_;
  prometheus::Family<prometheus::Gauge>& open_;
  prometheus::Family<prometheus::Gauge>& waiting_;
  prometheus::Family<prometheus::Gauge>& reserved_;
  prometheus::Family<prometheus::Gauge>& isolated_;
  std::map<std::pair<std::string, std::string>, series> all_;
};

}  // namespace troupe::request
