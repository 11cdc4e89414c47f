#include "actors/admission/tenants.hpp"

namespace troupe::admission {

std::shared_ptr<const key_ring> keys_of(const config::cluster& c) {
  if (c.tenants.empty()) return nullptr;
  std::vector<key_ring::entry> all;
  for (const auto& t : c.tenants) {
    key_owner owner{t.name, t.models, cluster_chain_key(c.section.id), 0};
    if (!t.share_prefixes) {
      const auto salt = salt_of(c.section.id, t.name);
      owner.chain_key = salt.chain_key;
      owner.prefix_scope = salt.prefix_scope;
    }
    all.push_back({std::move(owner), t.keys});
  }
  all.push_back({{}, c.section.operator_keys});
  return std::make_shared<key_ring>(all);
}

std::vector<tenant_limits> limits_of(const config::cluster& c) {
  std::vector<tenant_limits> all;
  for (const auto& t : c.tenants)
    for (const auto& l : t.limits)
      all.push_back({t.name, l.model, l.guaranteed_mu_per_minute, l.burst_mu,
                     l.isolated_mu_per_minute, l.best_effort_weight, l.concurrency_max,
                     static_cast<std::uint8_t>(l.priority), l.wait_max});
  return all;
}

}  // namespace troupe::admission
