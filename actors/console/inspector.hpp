#pragma once

#include "actors/console/reload_result.hpp"
#include "actors/console/tree_walk.hpp"
#include "actors/control/assignment.hpp"
#include "actors/directory/directory_actor.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::console {

/// Until an engine must have told its books: it does so between two steps.
inline constexpr std::chrono::milliseconds audit_timeout{2'000};
/// Queries that are worked at; above it they fail.
inline constexpr std::size_t queries_max = 64;

struct inspector_options {
  std::string host;
  std::uint64_t generation = 0;
  std::shared_ptr<link::post_office> office;
  std::shared_ptr<const directory::directory_view> view;
  /// What the node's tree hangs on; the root supervisor is the last of them.
  std::function<std::vector<tree_root>()> roots;
  /// Which router shard has which keys, as this node's requests go by it.
  std::function<std::shared_ptr<const control::assignment>()> assigned = {};
  /// Reads the node's cluster file again; with `apply`, takes over what can be.
  std::function<reload_result(bool apply, const std::string& digest)> reload;
};

/// `inspector/<host>`.
std::string inspector_name(const std::string& host);

/// Answers for its node: its tree, its part of the books, what its watchdog thinks. It holds no
/// handles but finds the actors in the tree, so that it sees their current incarnations. Each query
/// is answered by one report, also when somebody here is silent.
caf::actor spawn_inspector(caf::actor_system& system, inspector_options options);

}  // namespace troupe::console
