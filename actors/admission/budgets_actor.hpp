#pragma once

#include "actors/admission/gate.hpp"
#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::admission {

/// `budgets/<host>`.
std::string budgets_name(const std::string& host);
/// Of a name `<what>/<host>`.
std::string host_of(const std::string& name);

struct budgets_options {
  std::string host;
  std::uint64_t generation = 0;       ///< of this start; larger is newer
  std::vector<std::string> gateways;  ///< hosts of all gateways
  std::vector<tenant_limits> limits;
  std::shared_ptr<link::post_office> office;
};

/// To the actor: other limits, from now on.
struct set_budgets {
  std::vector<tenant_limits> limits;
};

/// Owns the budgets that the gateways' hubs ask it for, as many as follow it (`budget_owner`); one
/// on each gateway's host, so that any of them can take over. It answers, and says nothing by
/// itself. When it ends what it had made ends with the leases, and the next incarnation begins with
/// nothing.
caf::actor spawn_budgets(caf::actor_system& system, budgets_options options);

}  // namespace troupe::admission

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::admission::set_budgets)
