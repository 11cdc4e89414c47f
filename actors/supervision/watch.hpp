#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <functional>
#include <string>
#include <vector>

namespace troupe::supervision {

/// An actor that its process cannot do without, and that nobody restarts.
struct watched_actor {
  std::string name;  ///< for messages
  caf::actor actor;
};

/// Says of each of these actors that it has ended, and how: of what a process stands on, so that
/// the process can end, too. `on_end` runs in the watch; an actor that ended before is said at
/// once. Lives as long as somebody holds it. End it before what it watches is stopped in order, or
/// ignore what it says then.
caf::actor spawn_watch(caf::actor_system& system, std::vector<watched_actor> actors,
                       std::function<void(const std::string& why)> on_end);

}  // namespace troupe::supervision
