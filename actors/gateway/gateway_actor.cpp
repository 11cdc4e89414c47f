#include "actors/gateway/gateway_actor.hpp"

#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>

#include <utility>

namespace troupe::gateway {

namespace {

struct gateway_state {
  static constexpr const char* name = "gateway";
  std::shared_ptr<http_gateway> server;
};

caf::behavior behavior(caf::stateful_actor<gateway_state>* self,
                       std::shared_ptr<http_gateway> server) {
  self->state.server = std::move(server);
  self->set_default_handler(caf::drop);
  return {
      [self](const announce_drain&) { self->state.server->announce_drain(); },
      [self](const drain_gateway& x) {
        self->state.server->drain([to = x.reply_to] { caf::anon_send(to, gateway_drained{}); });
      },
      supervision::answers_for_itself(self),
  };
}

}  // namespace

expected<caf::actor> spawn_gateway(caf::actor_system& system, gateway_options options,
                                   std::shared_ptr<request::desk> desk) {
  auto server = std::make_shared<http_gateway>(std::move(options), std::move(desk));
  if (auto open = server->start(); !open) return std::move(open).error();
  return system.spawn(behavior, std::move(server));
}

}  // namespace troupe::gateway
