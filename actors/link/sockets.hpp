#pragma once

#include "actors/link/session.hpp"
#include "actors/link/waiting_room.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/expected.hpp>
#include <caf/io/doorman.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe::link {

// CAF's connections, guarded by sessions. (CAF's own module for OpenSSL tells nobody whose
// certificate a peer has shown, reads its files at each connection, and looks at the socket again
// and again while a handshake waits.)

/// A port for a broker. The address and the port of a connection are those that its session was
/// told. `room`: who waits there for its proof; somebody has to sweep it.
caf::expected<caf::io::doorman_ptr> open_door(caf::actor_system& system, std::uint16_t port,
                                              const std::string& address, guard by,
                                              std::shared_ptr<waiting_room> room);

/// An actor that connects in the words of CAF's middleman; its connections belong to CAF's broker.
/// One peer does not wait for another. Without a guard connections are plain. To be ended by
/// `end_dialler`, before its system.
caf::actor spawn_dialler(caf::actor_system& system, std::optional<guard> by);
void end_dialler(const caf::actor& dialler);

}  // namespace troupe::link
