#pragma once

#include "actors/control/control_policy.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <memory>

namespace troupe::control {

/// What the control host decides, for Prometheus; whichever incarnation of it. One actor's.
class control_metrics {
 public:
  explicit control_metrics(std::shared_ptr<prometheus::Registry> registry);

  void show(const control_policy::view& now);
  /// A new assignment is out, which moved such a part of the key space.
  void assigned(double churn) {
    assignments_->Increment();
    moved_->Increment(churn);
  }

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge* term_;
  prometheus::Gauge* generation_;
  prometheus::Gauge* imbalance_;
  prometheus::Gauge* lost_;
  prometheus::Gauge* stuck_;
  prometheus::Counter* assignments_;
  prometheus::Counter* moved_;
};

}  // namespace troupe::control
