#pragma once

#include "actors/control/shard_load.hpp"
#include "actors/control/shard_map.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/link/post_office.hpp"
#include "actors/router/router_policy.hpp"
#include "actors/router/shard_name.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <prometheus/registry.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::router {

/// A shard that begins is announced as ready when it sees every host of the cluster and all ready
/// workers have told it what they hold, or after so long.
inline constexpr std::chrono::milliseconds complete_within{5'000};
/// A worker that has not done so is asked again after so long, then after twice that, and so on up
/// to this: all that it holds is much to send to nobody.
inline constexpr std::chrono::milliseconds ask_again_after{2'000};
inline constexpr std::chrono::milliseconds ask_again_at_most{60'000};

struct router_options {
  std::string host;
  std::string name = shard_name(0);
  std::uint64_t generation = 0;  ///< of this start; larger is newer
  router_limits limits;
  std::map<std::string, topology::place> places;  ///< of all hosts of the cluster
  std::vector<std::string> models;
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  std::map<std::string, capacity::cost_model> costs = {};  ///< calibrated, by pool
  std::uint64_t first_lease =
      0;  ///< 0: drawn at random, so that no two incarnations give the same numbers
  /// Who has which keys, from the start on; null: this shard has all.
  std::shared_ptr<const control::assignment> assigned = nullptr;
  /// What its node goes by, from which a newer one is taken over at any time; null: nothing is.
  std::shared_ptr<const control::shard_map> node = nullptr;
  std::shared_ptr<prometheus::Registry> metrics = nullptr;
};

/// Shards tell the control host of themselves so often.
inline constexpr std::chrono::milliseconds account_interval{10'000};

/// A hub that goes by an older assignment is told the shard's; again only after so long.
inline constexpr std::chrono::milliseconds tell_again_after{30'000};

/// To a shard: its node is about to end. It answers as before, but is asked only when no other is
/// ready; sessions are theirs now.
struct drain_shard {};

/// To a shard: whom have you leased what to? Answered with `leases_report`.
struct describe_leases {};
struct leases_report {
  std::vector<router_policy::lease_view> leases;
};

/// A shard: binds its name in the post office, follows the directory, and is in it from its start
/// to its end.
caf::actor spawn_router(caf::actor_system& system, router_options options);

}  // namespace troupe::router

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::router::drain_shard)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::router::describe_leases)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::router::leases_report)
