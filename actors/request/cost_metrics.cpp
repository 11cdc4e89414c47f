#include "actors/request/cost_metrics.hpp"

#include <chrono>

namespace troupe::request {

namespace {

/// From a short question to the longest documents.
const prometheus::Histogram::BucketBoundaries units = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                       1,     3,     10,   30,   100};

prometheus::Family<prometheus::Counter>& counter(prometheus::Registry& r, const char* name,
                                                 const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(r);
}

double seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

}  // namespace

cost_metrics::cost_metrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)),
      units_(counter(*registry_, "troupe_model_units_total",
                     "Model units of ended requests: what tenants are charged, and what engines "
                     "had to do (repetitions and transfers included)")),
      guessed_(counter(*registry_, "troupe_guessed_costs_total",
                       "Ended requests of which a worker did not tell what a job has cost")),
      seconds_(counter(*registry_, "troupe_engine_seconds_total",
                       "Engines' time for ended requests, by what it went into")),
      request_mu_(prometheus::BuildHistogram()
                      .Name("troupe_request_model_units")
                      .Help("Model units that a request is charged")
                      .Register(*registry_)),
      mu_seconds_(prometheus::BuildGauge()
                      .Name("troupe_model_unit_seconds")
                      .Help("An engine's time for one model unit, at the model's price")
                      .Register(*registry_)) {}

cost_metrics::series& cost_metrics::of(const std::string& model) {
  if (const auto i = by_model_.find(model); i != by_model_.end()) return i->second;
  const auto kind = [&](const char* key, const char* value) {
    return prometheus::Labels{{"model", model}, {key, value}};
  };
  series s{&units_.Add(kind("ledger", "tenant")),       &units_.Add(kind("ledger", "physical")),
           &guessed_.Add({{"model", model}}),           &seconds_.Add(kind("phase", "prefill")),
           &seconds_.Add(kind("phase", "decode")),      &seconds_.Add(kind("phase", "transfer")),
           &request_mu_.Add({{"model", model}}, units), &mu_seconds_.Add({{"model", model}})};
  return by_model_.emplace(model, s).first->second;
}

void cost_metrics::settled(const std::string& model, const settlement& s, double seconds_per_mu) {
  auto& m = of(model);
  m.tenant_mu->Increment(s.tenant_mu);
  m.physical_mu->Increment(s.physical_mu);
  if (s.guessed) m.guessed->Increment();
  const auto cost = total_cost(s.jobs);
  m.prefill_seconds->Increment(seconds(cost.prefill));
  m.decode_seconds->Increment(seconds(cost.decode));
  m.transfer_seconds->Increment(seconds(cost.transfer));
  m.request_mu->Observe(s.tenant_mu);
  m.mu_seconds->Set(seconds_per_mu);
}

}  // namespace troupe::request
