#pragma once

#include "actors/crash/shared_board.hpp"
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

/// The end of an engine's process is known within milliseconds of the end of its link: so long the
/// loss of a link is kept back, lest requests go on elsewhere before they hear who is suspected.
inline constexpr std::chrono::milliseconds link_loss_grace{100};

/// How often the watchdog is told that an engine can be heard: it may be a new one.
inline constexpr std::chrono::milliseconds in_reach_interval{1'000};

/// For a killed process to end: the kernel may have much of it to give back, a device included.
/// After that it is in the hands of a driver that doesn't let go.
inline constexpr std::chrono::milliseconds kill_heeded_max{30'000};

/// An engine that was broken in so many lives in a row is not started again: it is its device that
/// is.
inline constexpr std::uint32_t broken_lives_max = 3;

/// How a child is started: the real thing forks, a test notes what it was asked.
using child_starter = std::function<expected<std::unique_ptr<process>>(child_process::options)>;

/// What an operator wants of an engine for as long as nobody says otherwise.
enum class standing_order : std::uint8_t {
  none,
  keep,  ///< drained, and kept loaded
  stop,  ///< drained, and stopped
};

struct launcher_options {
  config::engine_instance engine;
  config::pool_role role = config::pool_role::both;
  std::string model;
  std::string program;  ///< of the engine: this executable
  resource_limits limits;
  std::string config_file;
  std::uint16_t node_port = 0;  ///< of the link listener for engines, on loopback
  std::vector<std::uint8_t> secret;
  /// Of each start of the engine: larger than any before, also across restarts of the launcher and
  /// of the node.
  std::function<std::uint64_t()> next_generation;
  std::uint64_t seed = 1;  ///< of the back-off's jitter
  supervision::restart_limits restarts;
  std::chrono::milliseconds load_timeout{300'000};  ///< without progress of loading
  /// An engine whose link is lost but whose process lives may come back for so long; then it is
  /// killed.
  std::chrono::milliseconds unlinked_max{10'000};
  /// The other engines of this host, by name: they are told when this one's process is gone, since
  /// over shared memory nothing else tells them.
  std::vector<std::string> neighbours;
  /// Outlives the launcher, so that its next incarnation keeps to the order; not null.
  std::shared_ptr<standing_order> standing = std::make_shared<standing_order>();
  /// The watchdog's current incarnation, which gets the engine's reports and says when it hangs.
  /// Null, or none: nobody judges.
  std::function<caf::actor()> watchdog;
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  /// Where the request hubs are found that are told who may have crashed the engine; null: nobody
  /// is.
  std::shared_ptr<const directory::directory_view> view;
  /// A new board for each start, where the engine says what it works at.
  std::function<expected<std::unique_ptr<crash::board_source>>()> make_board =
      &crash::shared_board::create;
  child_starter start = &child_process::start;
};

// -- messages inside the process -----------------------------------------------

/// To a launcher: let the engine finish its jobs for `drain` (0: don't wait), then stop it; kill it
/// when that takes longer than `within`. It tells `reply_to` by `engine_stopped` and ends. An EXIT
/// with `user_shutdown` means the same, without draining.
struct stop_engine {
  std::chrono::milliseconds drain{0};
  std::chrono::milliseconds within{5'000};
  caf::actor reply_to;
};
struct engine_stopped {
  std::string engine;
};

/// Whether a process ended so by its own fault. What it was told to do (`told`), what an operator
/// or the system's memory killer does, and the ends that Troupe chooses are none; but for that of
/// an engine one of whose actors is lost, which may be over a prompt.
bool is_crash(const exit_status& s, bool told);

/// What an engine of such a pool is in the directory.
msg::Role role_of(config::pool_role role);

/// `launcher/<pool>/<host>.<index>`.
std::string launcher_name(const config::engine_instance& engine);

/// Owns one engine process: starts it, follows its state, restarts it with back-off when it ends,
/// and says at once when it is gone. An engine that cannot work (fatal exit code) or that ends too
/// often is marked failed, with the reason, and not started again.
caf::actor spawn_launcher(caf::actor_system& system, launcher_options options);

}  // namespace troupe::launcher

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::launcher::stop_engine)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::launcher::engine_stopped)
