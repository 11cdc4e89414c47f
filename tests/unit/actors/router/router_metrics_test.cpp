#include "actors/router/router_metrics.hpp"

#include <catch2/catch.hpp>
#include <prometheus/text_serializer.h>

#include <memory>
#include <string>

using namespace troupe;

TEST_CASE("a shard's decisions are counted over its incarnations, beside other shards'") {
  // How it can fail: a restart registers its counters a second time, or begins at 0.
  auto registry = std::make_shared<prometheus::Registry>();
  {
    router::router_metrics m{registry, "router/0"};
    m.decided(false);
    m.decided(true);
  }
  router::router_metrics again{registry, "router/0"};
  again.decided(false);
  router::router_metrics other{registry, "router/1"};
  other.decided(true);
  const auto text = prometheus::TextSerializer{}.Serialize(registry->Collect());
  for (const auto* line : {"troupe_router_decisions_total{shard=\"router/0\"} 3",
                           "troupe_router_misrouted_total{shard=\"router/0\"} 1",
                           "troupe_router_decisions_total{shard=\"router/1\"} 1",
                           "troupe_router_misrouted_total{shard=\"router/1\"} 1"}) {
    INFO(text);
    CHECK(text.find(line) != std::string::npos);
  }
}
