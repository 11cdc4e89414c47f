#pragma once

#include "actors/link/post_office.hpp"
#include "actors/link/scheduler.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <chrono>
#include <cstddef>

namespace troupe::link {

/// Threads that run actors. Actors here decide and forward; what computes has threads of its own.
inline constexpr std::size_t scheduler_threads = 2;

/// Messages that an actor handles before others have their turn.
inline constexpr std::size_t turn_messages_max = 32;

/// The settings of every actor system of the project.
///
/// CAF's defaults would never notice a frozen peer (no heartbeats), and are slower for few threads:
/// a scheduler that wakes few of them is our own, and without workers of its own the middleman
/// reads a message without one more copy.
class system_config : public caf::actor_system_config {
 public:
  explicit system_config(
      std::chrono::milliseconds heartbeat_interval = std::chrono::milliseconds{1'000},
      std::chrono::milliseconds heartbeat_timeout = std::chrono::milliseconds{4'000}) {
    add_message_types<caf::id_block::troupe_messages>();
    add_message_types<caf::id_block::troupe_link>();
    load<caf::io::middleman>();
    module_factories.emplace_back([](caf::actor_system& system) -> caf::actor_system::module* {
      return new scheduler{system};  // the system's from here on
    });
    set("scheduler.max-threads", scheduler_threads);
    set("scheduler.max-throughput", turn_messages_max);
    set("middleman.workers", std::size_t{0});
    set("middleman.heartbeat-interval", caf::timespan{heartbeat_interval});
    set("middleman.connection-timeout", caf::timespan{heartbeat_timeout});
    // Routes are explicit: an indirect one carries no DOWN.
    set("middleman.enable-automatic-connections", false);
  }
};

}  // namespace troupe::link
