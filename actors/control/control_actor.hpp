#pragma once

#include "actors/control/control_policy.hpp"
#include "actors/control/store.hpp"
#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::control {

/// There is one in a cluster: where shards send their accounts.
inline constexpr const char* control_name = "control";

/// All are sent the last assignment again so often: a hub that was just being replaced has missed
/// it.
inline constexpr std::chrono::milliseconds repeat_after{30'000};

struct control_options {
  std::uint64_t generation = 0;  ///< of this start; larger is newer
  std::vector<std::string> shards;
  control_limits limits;
  std::shared_ptr<store> state;
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  std::shared_ptr<prometheus::Registry> metrics = nullptr;  ///< null: nothing is counted
};

/// To the actor: how is it? Answered with `control_report`.
struct describe_control {};
struct control_report {
  assignment_number number;
  std::optional<std::chrono::milliseconds> made_ago;  ///< none: not since it began
  double imbalance = 0;
  double churn = 0;
  std::vector<std::string> lost;
  std::string problem;
};

/// Gives router shards their keys, by `control_policy`: hears shards' accounts and the directory,
/// has each assignment persisted, and then tells the shards and each node's hub of it, those that
/// come later, too. All go on without it: each incarnation takes a higher term and goes on with
/// what was there.
caf::actor spawn_control(caf::actor_system& system, control_options options);

}  // namespace troupe::control

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::control::describe_control)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::control::control_report)
