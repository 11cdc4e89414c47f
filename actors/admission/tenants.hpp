#pragma once

#include "actors/admission/gate.hpp"
#include "actors/admission/key_ring.hpp"
#include "config/cluster.hpp"

#include <memory>
#include <vector>

namespace troupe::admission {

// What the cluster file says of tenants, in this folder's terms. Pure.

/// The keys of all tenants and operators; null: there are no tenants.
std::shared_ptr<const key_ring> keys_of(const config::cluster& c);
/// Of each tenant and model, in the file's order.
std::vector<tenant_limits> limits_of(const config::cluster& c);

}  // namespace troupe::admission
