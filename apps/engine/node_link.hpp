#pragma once

#include "actors/link/link_actor.hpp"
#include "config/cluster.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::apps {

/// What a link's owner shares with the object that started it.
struct node_link_news;

/// An engine's link to the node that started it, and what the process wants to know of it.
/// Thread-safe.
///
/// The post office's default route leads into the link: whatever this process does not know itself,
/// its node knows.
class node_link {
 public:
  struct options {
    std::string cluster_id;
    std::string engine;
    std::uint64_t generation = 0;
    std::string host;
    std::uint16_t port = 0;
    std::vector<std::uint8_t> secret;
    config::health health;
    /// Called when the link is there, again too; and when the node has refused or is gone for
    /// longer than `gone_after`. Any thread.
    std::function<void()> on_up;
    std::function<void(std::string why)> on_gone;
  };
  /// A link that is down for so long means that the node is gone.
  static constexpr std::chrono::milliseconds gone_after{10'000};

  node_link(caf::actor_system& system, std::shared_ptr<link::post_office> office, options how);
  ~node_link();
  node_link(const node_link&) = delete;
  node_link& operator=(const node_link&) = delete;

  /// Why the node refused this engine, if it did.
  std::optional<error> refusal() const;

 private:
  std::shared_ptr<node_link_news> shared_;
  caf::actor owner_;
  caf::actor connector_;
};

}  // namespace troupe::apps
