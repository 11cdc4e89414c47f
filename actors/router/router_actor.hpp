#pragma once

#include "actors/directory/directory_actor.hpp"
#include "actors/link/post_office.hpp"
#include "actors/router/router_policy.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::router {

struct router_options {
  std::string host;
  router_limits limits;
  std::map<std::string, topology::place> places;
  std::vector<std::string> models;
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  std::map<std::string, capacity::cost_model> costs = {};  ///< calibrated, by pool
  std::uint64_t first_lease =
      0;  ///< 0: drawn at random, so that no two incarnations give the same numbers
};

/// To a shard: whom have you leased what to? Answered with `leases_report`.
struct describe_leases {};
struct leases_report {
  std::vector<router_policy::lease_view> leases;
};

/// `router/0`: one shard, for now.
inline constexpr const char* router_name = "router/0";

/// Binds `router_name` in the post office and follows the directory.
caf::actor spawn_router(caf::actor_system& system, router_options options);

}  // namespace troupe::router

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::router::describe_leases)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::router::leases_report)
