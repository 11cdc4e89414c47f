#pragma once

#include "actors/admission/gate.hpp"
#include "actors/control/shard_map.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/request/cost_book.hpp"
#include "actors/request/request_actor.hpp"
#include "config/cluster.hpp"

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

namespace troupe::request {

struct hub_options {
  std::string host;
  std::uint64_t generation = 0;  ///< of this start; larger is newer, 0: not known
  config::limits limits;
  config::health health;
  std::vector<std::string> models;
  std::shared_ptr<link::post_office> office;
  std::shared_ptr<directory::directory_view> view;
  caf::actor directory;
  std::size_t burst_actors_max = 64;        ///< see `burst`
  std::vector<cost_book::pool> pools = {};  ///< in the cluster file's order
  /// Where model units are counted; null: nowhere that anybody sees.
  std::shared_ptr<prometheus::Registry> metrics = nullptr;
  std::vector<troupe::admission::tenant_limits> tenants = {};  ///< none: everybody may come in
  std::vector<std::string> gateways = {};  ///< hosts of all gateways, in one order everywhere
  std::map<std::string, std::uint32_t> step_tokens = {};  ///< by pool
  /// What the node knows of the router shards, kept over the hub's incarnations; null: there is
  /// one.
  std::shared_ptr<control::shard_map> shards = nullptr;
};

/// A node's request hub: the actor `requests/<host>`, and the thread-safe desk that the gateway
/// puts requests on. When a node stops it is the gateway that takes nothing new, ends what is open,
/// and cancels here what its clients no longer wait for.
struct hub {
  caf::actor actor;
  std::shared_ptr<desk> front;
  std::shared_ptr<admission> gate;
  std::shared_ptr<job_book> jobs;
};

/// To the hub: tenants' limits are these from now on.
struct set_tenants {
  std::vector<troupe::admission::tenant_limits> limits;
};

/// To the hub: what do your requests hold? Answered with `requests_report`.
struct describe_requests {};
struct requests_report {
  struct row {
    request_id id;
    std::string external_id;
    std::string model;
    std::chrono::milliseconds age{0};
    std::uint64_t prompt_bytes = 0;
    bool waiting = false;  ///< for limits or capacity: it has not begun
  };
  std::uint64_t generation = 0;
  std::vector<row> requests;
  std::vector<troupe::admission::tenant_account> tenants;
  std::map<job_book::worker, std::vector<job_key>> jobs;
  std::vector<lease_book::lease> leases;
  std::uint32_t tickets = 0;  ///< open requests as `admission` counts them
  std::uint64_t held_bytes = 0;
};

/// To the hub: how did the request with this external id travel? Answered with JSON, empty when it
/// is not known.
struct describe_timeline {
  std::string external_id;
};

/// To the hub: how are the workers of the cluster, as they said last? Answered with JSON.
struct describe_workers {};

/// `requests/<host>`.
std::string hub_name(const std::string& host);

/// Spawns one request actor per request, hands messages of workers to them by key, renews their
/// leases at workers (one message per worker), and tells them when a worker is gone.
hub make_hub(caf::actor_system& system, hub_options options);

}  // namespace troupe::request

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::set_tenants)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::describe_requests)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::requests_report)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::describe_timeline)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::describe_workers)
