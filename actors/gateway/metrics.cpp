#include "actors/gateway/metrics.hpp"

#include <prometheus/text_serializer.h>

namespace troupe::gateway {

namespace {

const prometheus::Histogram::BucketBoundaries seconds = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

prometheus::Gauge& gauge(prometheus::Registry& r, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(r).Add({});
}

prometheus::Histogram& histogram(prometheus::Registry& r, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(r).Add({}, seconds);
}

prometheus::Family<prometheus::Counter>& counter(prometheus::Registry& r, const char* name,
                                                 const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(r);
}

}  // namespace

metrics::metrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)),
      answers_(counter(*registry_, "troupe_http_answers_total", "Answers by route and status")),
      lost_(counter(*registry_, "troupe_http_lost_total",
                    "Requests refused before a route saw them, and clients that went away")),
      tokens_(counter(*registry_, "troupe_tokens_total", "Tokens of finished requests by kind")),
      connections_(gauge(*registry_, "troupe_http_connections", "Open client connections")),
      open_requests_(gauge(*registry_, "troupe_open_requests", "Completions under way")),
      ttft_(histogram(*registry_, "troupe_ttft_seconds",
                      "From a request's last byte to the first token's text")),
      duration_(histogram(*registry_, "troupe_request_seconds",
                          "From a request's last byte to its last token")) {}

void metrics::answered(const std::string& route, unsigned status) {
  answers_.Add({{"route", route}, {"status", std::to_string(status)}}).Increment();
}

void metrics::lost(const std::string& reason) { lost_.Add({{"reason", reason}}).Increment(); }

void metrics::tokens(std::uint32_t prompt, std::uint32_t cached, std::uint32_t completion) {
  tokens_.Add({{"kind", "prompt"}}).Increment(prompt);
  tokens_.Add({{"kind", "cached"}}).Increment(cached);
  tokens_.Add({{"kind", "completion"}}).Increment(completion);
}

std::string metrics::text() const {
  return prometheus::TextSerializer{}.Serialize(registry_->Collect());
}

}  // namespace troupe::gateway
