#pragma once

#include "apps/engine/link_owner.hpp"
#include "config/cluster.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::apps {

/// An engine's link to the node that started it. Thread-safe.
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
    link_news news;
    /// See `link::link_context::dialler`; null: one that begins with the secret.
    caf::actor dialler;
  };

  node_link(caf::actor_system& system, options how);
  ~node_link();
  node_link(const node_link&) = delete;
  node_link& operator=(const node_link&) = delete;

  /// Who says the news: should it end, nobody does. It watches the connector itself.
  const caf::actor& owner() const { return owner_; }

 private:
  caf::actor owner_;
  caf::actor connector_;
  caf::actor dialler_;  ///< its own; null: it was given one
};

}  // namespace troupe::apps
