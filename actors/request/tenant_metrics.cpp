#include "actors/request/tenant_metrics.hpp"

namespace troupe::request {

namespace {

const prometheus::Histogram::BucketBoundaries seconds = {0.001, 0.01, 0.05, 0.1, 0.25, 0.5,
                                                         1,     2,    5,    10,  30,   60};

prometheus::Family<prometheus::Counter>& counter(prometheus::Registry& r, const char* name,
                                                 const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(r);
}

prometheus::Family<prometheus::Gauge>& gauge(prometheus::Registry& r, const char* name,
                                             const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(r);
}

}  // namespace

tenant_metrics::tenant_metrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)), admitted_(counter(*registry_, "troupe_tenant_admitted_total",
                                                        "Requests of tenants that were begun")),
      refused_(counter(*registry_, "troupe_tenant_refused_total",
                       "Requests of tenants that were refused, by reason")),
      left_(counter(*registry_, "troupe_tenant_left_total",
                    "Requests of tenants whose clients went away while they waited")),
      charged_(counter(*registry_, "troupe_tenant_model_units_total",
                       "Model units that tenants were charged")),
      waited_(prometheus::BuildHistogram()
                  .Name("troupe_tenant_wait_seconds")
                  .Help("From a tenant's request until it was begun")
                  .Register(*registry_)),
      open_(gauge(*registry_, "troupe_tenant_open_requests", "Requests of tenants that run")),
      waiting_(gauge(*registry_, "troupe_tenant_waiting_requests",
                     "Requests of tenants that wait for limits or capacity")),
      reserved_(gauge(*registry_, "troupe_tenant_reserved_model_units",
                      "Model units that running requests of tenants have reserved")),
      isolated_(gauge(*registry_, "troupe_tenant_isolated",
                      "1: this gateway hears of no owner of the tenant's budget")) {}

tenant_metrics::series& tenant_metrics::of(const std::string& tenant, const std::string& model) {
  const std::pair key{tenant, model};
  if (const auto i = all_.find(key); i != all_.end()) return i->second;
  const prometheus::Labels who{{"tenant", tenant}, {"model", model}};
  const series s{&admitted_.Add(who), &charged_.Add(who), &waited_.Add(who, seconds),
                 &open_.Add(who),     &waiting_.Add(who), &reserved_.Add(who),
                 &isolated_.Add(who)};
  return all_.emplace(key, s).first->second;
}

void tenant_metrics::admitted(const std::string& tenant, const std::string& model,
                              std::chrono::duration<double> waited) {
  auto& s = of(tenant, model);
  s.admitted->Increment();
  s.waited->Observe(waited.count());
}

void tenant_metrics::refused(const std::string& tenant, const std::string& model,
                             const std::string& reason) {
  refused_.Add({{"tenant", tenant}, {"model", model}, {"reason", reason}}).Increment();
}

void tenant_metrics::left(const std::string& tenant, const std::string& model) {
  left_.Add({{"tenant", tenant}, {"model", model}}).Increment();
}

void tenant_metrics::charged(const std::string& tenant, const std::string& model, double mu) {
  of(tenant, model).charged->Increment(mu);
}

void tenant_metrics::show(const std::vector<troupe::admission::tenant_account>& all) {
  for (auto& [who, s] : all_)
    for (auto* g : {s.open, s.waiting, s.reserved, s.isolated}) g->Set(0);
  for (const auto& a : all) {
    auto& s = of(a.tenant, a.model);
    s.open->Set(a.open);
    s.waiting->Set(static_cast<double>(a.waiting));
    s.reserved->Set(a.reserved_mu);
    s.isolated->Set(a.on_floor ? 1 : 0);
  }
}

}  // namespace troupe::request
