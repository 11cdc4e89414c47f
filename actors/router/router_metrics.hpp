#pragma once

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

namespace troupe::router {

/// What a shard has decided, for Prometheus; whichever incarnation of it. One actor's.
class router_metrics {
 public:
  router_metrics(std::shared_ptr<prometheus::Registry> registry, const std::string& shard);

  /// `misrouted`: for a key of another shard.
  void decided(bool misrouted) {
    decisions_->Increment();
    if (misrouted) misrouted_->Increment();
  }

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Counter* decisions_;
  prometheus::Counter* misrouted_;
};

}  // namespace troupe::router
