#pragma once

#include "actors/supervision/introspection.hpp"
#include "actors/supervision/restart_policy.hpp"
#include "messages/base/expected.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe::supervision {

/// How to start, restart and stop one child.
struct child_spec {
  std::string id;
  /// Runs in the supervisor; must not block. A larger generation is a newer incarnation. An error
  /// counts as a failed start.
  std::function<expected<caf::actor>(std::uint64_t generation)> start;
  restart_kind restart = restart_kind::permanent;
  /// From EXIT to kill.
  std::chrono::milliseconds shutdown{5'000};
};

struct supervisor_options {
  std::string name;
  strategy how = strategy::one_for_one;
  restart_limits limits;
  std::vector<child_spec> children;  ///< in start order; stopped in reverse
  std::uint64_t first_generation = 1;
  std::uint64_t seed = 1;  ///< of the back-off's jitter
};

/// To a supervisor: what do you hold? Answered with `children_report`.
struct describe_children {};
struct children_report {
  std::string supervisor;
  std::vector<child_report> children;
};

/// Starts children in order and keeps them running, by `restart_policy`.
///
/// It monitors and does not link: a child that dies of `kill` would take a linked supervisor along.
/// Each start gets a new generation; a late DOWN of an older incarnation changes nothing. Stopping
/// is asynchronous: EXIT in reverse order, one at a time, and kill at the deadline. When the policy
/// says so, the supervisor stops all and ends with an error, so that its own supervisor decides. An
/// EXIT with `user_shutdown` stops all children in order; when the supervisor is killed or throws,
/// they get an EXIT from its destructor.
caf::actor spawn_supervisor(caf::actor_system& system, supervisor_options options);

}  // namespace troupe::supervision

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::supervision::describe_children)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::supervision::children_report)
