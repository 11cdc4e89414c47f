#pragma once

#include "actors/directory/directory_actor.hpp"
#include "actors/launcher/child_process.hpp"
#include "actors/supervision/restart_policy.hpp"
#include "config/cluster.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::launcher {

/// How a child is started: the real thing forks, a test notes what it was asked.
using child_starter = std::function<expected<std::unique_ptr<child_process>>(child_process::options)>;

struct launcher_options {
  config::engine_instance engine;
  config::pool_role role = config::pool_role::both;
  std::string model;
  std::string program;                       ///< of the engine: this executable
  std::string config_file;
  std::uint16_t node_port = 0;               ///< of the link listener for engines, on loopback
  std::vector<std::uint8_t> secret;
  /// First generation; each start takes the next. From the clock of the node's start, so that a new node's engines are newer than the old one's.
  std::uint64_t first_generation = 1;
  supervision::restart_limits restarts;
  std::chrono::milliseconds load_timeout{300'000};  ///< without progress of loading
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  child_starter start = &child_process::start;
};

// -- messages inside the process -----------------------------------------------

/// To a launcher: stop the engine, within so long; then kill. It answers the sender with `engine_stopped` and ends.
struct stop_engine {
  std::chrono::milliseconds within{5'000};
};
struct engine_stopped {
  std::string engine;
};

/// `launcher/<pool>/<host>.<index>`.
std::string launcher_name(const config::engine_instance& engine);

/// Owns one engine process: starts it, follows its state, restarts it with back-off when it ends, and says at once when it is gone. An engine that cannot work (fatal exit code) or that ends too
/// often is marked failed, with the reason, and not started again.
caf::actor spawn_launcher(caf::actor_system& system, launcher_options options);

}  // namespace troupe::launcher

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::launcher::stop_engine)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::launcher::engine_stopped)
