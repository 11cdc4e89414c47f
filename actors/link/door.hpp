#pragma once

#include "actors/link/link_actor.hpp"
#include "actors/link/session.hpp"
#include "actors/link/tls_session.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::link {

/// Whom a listener lets in, and by what they are known.
struct door {
  msg::ProcessKind lets_in = msg::ProcessKind::NODE;
  /// By what connections are guarded; none: they are plain.
  std::optional<guard> by;
  /// Set where peers show certificates: those that the guard's sessions have seen.
  std::shared_ptr<const tls_peers> peers;
};

/// Publishes the listener that peers connect to, for processes of one kind only. Where certificates
/// are shown, a peer's name must be that of the one shown on the connection by which it speaks. Who
/// proves nothing for `proof_timeout` is cut off. Blocks (start-up only). Returns the port really
/// bound. Errors: `port_in_use`, with the address and the system's reason: CAF tells no other cause
/// apart.
expected<std::uint16_t> listen_at(caf::actor_system& system,
                                  std::shared_ptr<const link_context> context,
                                  const std::string& address, std::uint16_t port, door at,
                                  caf::actor& listener);

/// A peer whose name is to be the one in the certificate that it has shown; none: its connection is
/// not known. Pure. Errors: `not_proved`, `other_host`.
expected<peer_info> prove(peer_info claimed, const std::optional<trust::facts>& shown);

}  // namespace troupe::link
