#pragma once

#include "actors/link/handshake.hpp"
#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::link {

/// Pulse and patience of links.
struct link_timing {
  std::chrono::milliseconds ping{1'000};
  /// Without an echo of our pings for so long the link is down, also when only one direction is
  /// cut.
  std::chrono::milliseconds silence_max{4'000};
  std::chrono::milliseconds handshake{3'000};
  std::chrono::milliseconds reconnect_min{100};
  std::chrono::milliseconds reconnect_max{2'000};
  /// After a refusal, which only a restart of one side can mend.
  std::chrono::milliseconds refused_retry{15'000};
};

/// Between a link and the network: what a link says to its peer passes here. Faults (loss, delay,
/// one-way cuts) are put in here, by tests and simulations.
class wire {
 public:
  virtual ~wire() = default;
  /// Called in the sending link actor.
  virtual void send(const caf::actor& from, const caf::actor& to, caf::message what) = 0;
};

/// What all links of a process share. Immutable.
struct link_context {
  identity self;
  std::vector<std::string> known_hosts;
  std::shared_ptr<post_office> office;
  link_timing timing;
  /// Gets `link_up`, `link_down` and `link_refused`.
  caf::actor owner;
  /// Null: straight to the peer.
  std::shared_ptr<wire> through;
  /// Whom a connector asks for its peer's listener, in the words of CAF's middleman (which it is
  /// when null). A simulation has a network of its own.
  caf::actor dialler;
};

// -- to the owner, inside the process ----------------------------------------

/// A peer has passed the handshake; `link` takes parcels for it.
struct link_up {
  peer_info peer;
  caf::actor link;
};

struct link_down {
  peer_info peer;
  caf::actor link;
  std::string reason;
};

/// We were refused, or refused somebody. Only another cluster file, or another certificate, can
/// mend it.
struct link_refused {
  std::string peer;  ///< its host, as we or it call it; empty for whoever came to our listener
  error why;
  bool by_peer = false;
};

/// The two ends without any network, for tests and simulations: what `listen_at` (door.hpp)
/// publishes, but without a door, and what a connector starts once it is connected. `connector` is
/// told of a refusal.
caf::actor spawn_listener(caf::actor_system& system, std::shared_ptr<const link_context> context);
caf::actor spawn_link(caf::actor_system& system, std::shared_ptr<const link_context> context,
                      const caf::actor& listener, const caf::actor& connector);

/// An actor that keeps a link to one peer: connects, shakes hands, and connects again after a loss,
/// with back-off. `peer_name` is for messages only. A refusal is told to the owner by
/// `link_refused`: an engine's connector ends then, a node's tries again after `refused_retry`.
caf::actor spawn_connector(caf::actor_system& system, std::shared_ptr<const link_context> context,
                           std::string peer_name, std::string address, std::uint16_t port);

/// Says Goodbye on a link and ends it.
void close_link(const caf::actor& link, const std::string& reason);

}  // namespace troupe::link

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::link::link_up)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::link::link_down)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::link::link_refused)
