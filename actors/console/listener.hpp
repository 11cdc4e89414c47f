#pragma once

#include "actors/directory/directory_actor.hpp"
#include "actors/trust/credentials.hpp"
#include "messages/base/expected.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::console {

/// Terminals of one node at a time; further ones are closed at once.
inline constexpr std::size_t sessions_max = 16;

struct listener_options {
  std::string host;
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;          ///< 0: any free one
  std::vector<std::string> hosts;  ///< of the cluster
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  std::shared_ptr<const directory::directory_view> view;
  std::function<std::uint64_t()> next_generation;
  std::function<caf::actor()> drain;  ///< the node's drain actor as it is now
  /// Null: plain, and whoever connects is an operator. Else by TLS, with a certificate that says
  /// which role.
  std::shared_ptr<trust::credentials> credentials;
};

struct console_listener {
  caf::actor actor;
  std::uint16_t port = 0;
};

/// Listens for terminals: each gets a session, whose supervisor this is; sessions are temporary.
/// Bytes become frames in brokers of CAF's, beside the links'; whoever sends no frames is closed.
/// Errors: `port_in_use`, naming the address.
expected<console_listener> spawn_listener(caf::actor_system& system, listener_options options);

}  // namespace troupe::console
