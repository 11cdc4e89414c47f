#include "actors/router/router_metrics.hpp"

#include <prometheus/family.h>

#include <utility>

namespace troupe::router {

namespace {

prometheus::Counter* counter(prometheus::Registry& r, const char* name, const char* help,
                             const std::string& shard) {
  return &prometheus::BuildCounter().Name(name).Help(help).Register(r).Add({{"shard", shard}});
}

}  // namespace

router_metrics::router_metrics(std::shared_ptr<prometheus::Registry> registry,
                               const std::string& shard)
    : registry_(std::move(registry)),
      decisions_(counter(*registry_, "troupe_router_decisions_total",
                         "Routes that a router shard on this host was asked for", shard)),
      misrouted_(counter(*registry_, "troupe_router_misrouted_total",
                         "Of those, for keys that are another shard's by the assignment that it "
                         "goes by",
                         shard)) {}

}  // namespace troupe::router
