#pragma once

#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace troupe::apps {

/// A link that is down for so long means that the node is gone.
inline constexpr std::chrono::milliseconds node_gone_after{10'000};

/// What an engine's process wants to know of the link to its node. Called in the owner.
struct link_news {
  std::shared_ptr<link::post_office> office;  ///< its default route leads into the link
  std::function<void()> on_up;                ///< the link is there; again too
  /// The node has refused, is gone for longer than `node_gone_after`, or nobody connects to it any
  /// more.
  std::function<void(std::string why)> on_gone;
};

/// Owner of an engine's link (see `link::link_context::owner`). Send it the connector (a
/// `caf::actor`), so that its end is noticed.
caf::actor spawn_link_owner(caf::actor_system& system, link_news news);

}  // namespace troupe::apps
