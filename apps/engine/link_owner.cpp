#include "apps/engine/link_owner.hpp"

#include "actors/link/link_actor.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <utility>

namespace troupe::apps {

namespace {

using gone_atom = caf::atom_constant<caf::atom("nodegone")>;

struct owner_state {
  std::uint64_t outages = 0;  ///< a timer of an earlier one is void
  bool up = false;
  bool refused = false;
  static constexpr const char* name = "link_owner";
};

caf::behavior owner(caf::stateful_actor<owner_state>* self, const link_news& news) {
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_down_handler([self, news](caf::down_msg& down) {
    // One that was refused ends by itself, and that has been said.
    if (!self->state.refused)
      news.on_gone("the connector to the node has ended: " + self->system().render(down.reason));
  });
  self->delayed_send(self, node_gone_after, gone_atom::value, std::uint64_t{0});
  return {
      [self](const caf::actor& connector) { self->monitor(connector); },
      [self, news](const link::link_up& x) {
        self->state.up = true;
        news.office->set_default_route(x.link);
        news.on_up();
      },
      [self](const link::link_down& x) {
        self->state.up = false;
        spdlog::warn("event=node_unlinked reason=\"{}\"", x.reason);
        self->delayed_send(self, node_gone_after, gone_atom::value, ++self->state.outages);
      },
      [self, news](const link::link_refused& x) {
        self->state.refused = true;
        news.on_gone("the node refused this engine: " + x.why.message);
      },
      [self, news](gone_atom, std::uint64_t outage) {
        if (!self->state.up && outage == self->state.outages)
          news.on_gone("no link to the node for " + std::to_string(node_gone_after.count()) +
                       " ms");
      },
  };
}

}  // namespace

caf::actor spawn_link_owner(caf::actor_system& system, link_news news) {
  return system.spawn(owner, std::move(news));
}

}  // namespace troupe::apps
