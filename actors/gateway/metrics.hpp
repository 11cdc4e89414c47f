#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <memory>
#include <string>

namespace troupe::gateway {

/// The gateway's own figures. Thread-safe.
class metrics {
 public:
  explicit metrics(std::shared_ptr<prometheus::Registry> registry);

  void answered(const std::string& route, unsigned status);
  /// Streams that ended without a finish reason, requests that ended before their answer.
  void lost(const std::string& reason);
  void connections(std::size_t open) { connections_.Set(static_cast<double>(open)); }
  void request_opened() { open_requests_.Increment(); }
  void request_closed() { open_requests_.Decrement(); }
  void first_token_after(std::chrono::duration<double> t) { ttft_.Observe(t.count()); }
  void request_took(std::chrono::duration<double> t) { duration_.Observe(t.count()); }
  void tokens(std::uint32_t prompt, std::uint32_t cached, std::uint32_t completion);

  /// Prometheus' text format.
  std::string text() const;

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& answers_;
  prometheus::Family<prometheus::Counter>& lost_;
  prometheus::Family<prometheus::Counter>& tokens_;
  prometheus::Gauge& connections_;
  prometheus::Gauge& open_requests_;
  prometheus::Histogram& ttft_;
  prometheus::Histogram& duration_;
};

}  // namespace troupe::gateway
