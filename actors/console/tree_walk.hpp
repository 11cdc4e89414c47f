#pragma once

#include "actors/supervision/introspection.hpp"

#include <caf/event_based_actor.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::console {

/// An actor that busy is shown as silent.
inline constexpr std::chrono::milliseconds describe_timeout{1'000};
/// Deeper, or more actors, are not asked.
inline constexpr int tree_depth_max = 16;
inline constexpr std::size_t tree_nodes_max = 4'096;

/// One actor of a tree, and those below it.
struct tree_node {
  supervision::child_report child;  ///< its supervisor's view of it
  std::optional<std::size_t> mailbox;
  std::string silent;  ///< why it said nothing of itself
  supervision::actor_facts facts;
  std::vector<tree_node> children;
};

/// An actor that nobody else reports.
struct tree_root {
  std::string name;
  caf::actor actor;
};

/// Asks the roots, and then whom they name, how they are; calls `done` once with all that was said,
/// within `describe_timeout` for each level. Each actor counts its own mailbox: one that cannot
/// answer has no count, which says enough.
void walk_tree(caf::event_based_actor* self, const std::vector<tree_root>& roots,
               std::function<void(std::vector<tree_node>)> done);

}  // namespace troupe::console
