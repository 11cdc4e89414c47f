#pragma once

#include "actors/directory/directory_state.hpp"
#include "actors/link/link_actor.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <memory>
#include <mutex>
#include <string>

namespace troupe::directory {

// -- messages inside the process ----------------------------------------------

/// To the directory: one of this host's entries is now like this.
struct set_entry {
  entry value;
};

/// To the directory: this entry of this host is no more; one of a newer generation stays.
struct remove_entry {
  std::string name;
  std::uint64_t generation = 0;
};

/// To the directory: this actor wants `directory_changed` from now on, first with everything that
/// there is.
struct subscribe {
  caf::actor who;
};

/// To subscribers.
struct directory_changed {
  change what;
  std::shared_ptr<const snapshot> all;
  /// Set when a host was lost: everything that came from it is unknown.
  std::string lost_host;
};

/// To the directory: links to engines of this node are announced to their launchers, too.
struct watch_engine {
  std::string engine;
  caf::actor launcher;
};

/// The latest snapshot for threads that are no actors. Thread-safe.
class directory_view {
 public:
  std::shared_ptr<const snapshot> get() const {
    std::lock_guard lock{mutex_};
    return current_;
  }
  void set(std::shared_ptr<const snapshot> next) {
    std::lock_guard lock{mutex_};
    current_ = std::move(next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const snapshot> current_ = std::make_shared<snapshot>();
};

/// Tells a node's directory of an actor of its own that is ready from now on.
void announce_ready(const caf::actor& directory, std::string name, msg::Role role,
                    std::uint64_t generation);

/// `directory/<host>`: where nodes send each other their sets.
std::string directory_name(const std::string& host);

/// Owner of all links of a node: keeps the directory, replicates this host's set to every peer, and
/// points the post office's routes at the right links.
caf::actor spawn_directory(caf::actor_system& system, std::string host, link::process_id process,
                           std::shared_ptr<link::post_office> office,
                           std::shared_ptr<directory_view> view);

}  // namespace troupe::directory

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::directory::set_entry)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::directory::remove_entry)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::directory::subscribe)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::directory::directory_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::directory::watch_engine)
