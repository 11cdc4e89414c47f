#pragma once

#include "actors/gateway/gateway.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <memory>

namespace troupe::gateway {

/// To a gateway: `http_gateway::drain`. `reply_to` gets `gateway_drained`.
struct drain_gateway {
  caf::actor reply_to;
};
struct gateway_drained {};
/// To a gateway: `http_gateway::announce_drain`.
struct announce_drain {};

/// Owns a listening gateway; whatever ends the actor closes the port and ends open answers with an
/// error. Errors: as `http_gateway::start`.
expected<caf::actor> spawn_gateway(caf::actor_system& system, gateway_options options,
                                   std::shared_ptr<request::desk> desk);

}  // namespace troupe::gateway

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::gateway::drain_gateway)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::gateway::gateway_drained)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::gateway::announce_drain)
