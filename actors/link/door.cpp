#include "actors/link/door.hpp"

#include "actors/link/greeting.hpp"
#include "actors/link/sockets.hpp"
#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::link {

namespace {

using sweep_atom = caf::atom_constant<caf::atom("lsweep")>;

/// What a listener needs beside its context.
struct doorkeeper {
  door at;
  caf::actor broker;  ///< CAF's, which knows by which connection a peer speaks
  std::shared_ptr<waiting_room> room;
};

caf::behavior door_behavior(caf::event_based_actor* self,
                            std::shared_ptr<const link_context> context, const doorkeeper& keeper) {
  ignore_strays(self);
  // Whose certificate came by the connection that leads to this peer.
  auto prove_and_answer = [self, context, keeper](const caf::actor& peer,
                                                  const peer_info& claimed) {
    self->request(keeper.broker, context->timing.handshake, caf::get_atom::value, peer.node())
        .then(
            [=](const caf::node_id&, const std::string& address, std::uint16_t port) {
              answer_hello(self, context, peer,
                           prove(claimed, keeper.at.peers->find({address, port})));
            },
            [=](const caf::error&) {
              answer_hello(self, context, peer, prove(claimed, std::nullopt));
            });
  };
  if (keeper.room) self->delayed_send(self, sweep_interval, sweep_atom::value);
  return {
      [self, context, keeper, prove_and_answer](const msg::envelope<msg::Hello>& e) {
        auto peer = caf::actor_cast<caf::actor>(self->current_sender());
        if (!peer) return;
        auto judged = judge_hello(*context, e);
        if (judged && judged->kind != keeper.at.lets_in)
          judged = error{"wrong_port", keeper.at.lets_in == msg::ProcessKind::ENGINE
                                           ? "a node came to the port for this node's own engines"
                                           : "an engine came to the port for nodes"};
        if (judged && keeper.at.peers)
          prove_and_answer(peer, *judged);
        else
          answer_hello(self, context, peer, judged);
      },
      [self, keeper](sweep_atom) {
        keeper.room->sweep(waiting_room::clock::now());
        self->delayed_send(self, sweep_interval, sweep_atom::value);
      },
      supervision::answers_for_itself(self),
  };
}

/// As the middleman's own `publish`, by a guarded port.
caf::expected<std::uint16_t> publish(caf::actor_system& system, const doorkeeper& keeper,
                                     const caf::actor& what, std::uint16_t port,
                                     const std::string& address) {
  auto opened = open_door(system, port, address, *keeper.at.by, keeper.room);
  if (!opened) return std::move(opened.error());
  const auto bound = (*opened)->port();
  caf::anon_send(keeper.broker, caf::publish_atom::value, *opened, bound,
                 caf::actor_cast<caf::strong_actor_ptr>(what), std::set<std::string>{});
  return bound;
}

}  // namespace

expected<std::uint16_t> listen_at(caf::actor_system& system,
                                  std::shared_ptr<const link_context> context,
                                  const std::string& address, std::uint16_t port, door at,
                                  caf::actor& listener) {
  doorkeeper keeper{std::move(at),
                    system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP")),
                    nullptr};
  if (keeper.at.by) keeper.room = std::make_shared<waiting_room>();
  listener = system.spawn(door_behavior, std::move(context), keeper);
  auto bound = keeper.at.by ? publish(system, keeper, listener, port, address)
                            : system.middleman().publish(listener, port, address.c_str(), true);
  if (bound) return *bound;
  caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
  listener = nullptr;
  return error{"port_in_use", "cannot listen for links on " + address + ":" + std::to_string(port) +
                                  ": " + system.render(bound.error())};
}

expected<peer_info> prove(peer_info claimed, const std::optional<trust::facts>& shown) {
  if (!shown || shown->as != trust::role::host)
    return error{"not_proved", "a node calls itself host '" + claimed.host +
                                   "', but has shown no host's certificate"};
  if (std::find(shown->dns.begin(), shown->dns.end(), claimed.host) == shown->dns.end())
    return error{"other_host", "a node calls itself host '" + claimed.host +
                                   "', but its certificate is that of host '" + shown->name + "'"};
  return claimed;
}

}  // namespace troupe::link
