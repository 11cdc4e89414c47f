#include "apps/engine/node_link.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <utility>

namespace troupe::apps {

struct node_link_news {
  std::shared_ptr<link::post_office> office;
  std::function<void()> on_up;
  std::function<void(std::string)> on_gone;
  mutable std::mutex mutex;
  std::optional<error> refused;
};

namespace {

using gone_atom = caf::atom_constant<caf::atom("nodegone")>;

struct owner_state {
  std::uint64_t outages = 0;  ///< a timer of an earlier one is void
  bool up = false;
};

/// Owns the link and says when the node is gone.
caf::behavior owner(caf::stateful_actor<owner_state>* self,
                    const std::shared_ptr<node_link_news>& s) {
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->delayed_send(self, node_link::gone_after, gone_atom::value, std::uint64_t{0});
  return {
      [self, s](const link::link_up& x) {
        self->state.up = true;
        s->office->set_default_route(x.link);
        s->on_up();
      },
      [self](const link::link_down& x) {
        self->state.up = false;
        spdlog::warn("event=node_unlinked reason=\"{}\"", x.reason);
        self->delayed_send(self, node_link::gone_after, gone_atom::value, ++self->state.outages);
      },
      [s](const link::link_refused& x) {
        {
          std::lock_guard lock{s->mutex};
          s->refused = x.why;
        }
        s->on_gone("the node refused this engine: " + x.why.message);
      },
      [self, s](gone_atom, std::uint64_t outage) {
        if (!self->state.up && outage == self->state.outages)
          s->on_gone("no link to the node for " + std::to_string(node_link::gone_after.count()) +
                     " ms");
      },
  };
}

}  // namespace

node_link::node_link(caf::actor_system& system, std::shared_ptr<link::post_office> office,
                     options how)
    : shared_(std::make_shared<node_link_news>()) {
  shared_->office = office;
  shared_->on_up = std::move(how.on_up);
  shared_->on_gone = std::move(how.on_gone);
  owner_ = system.spawn(owner, shared_);
  link::link_context context;
  context.self.cluster_id = how.cluster_id;
  context.self.process = link::random_process_id();
  context.self.kind = msg::ProcessKind::ENGINE;
  context.self.host = how.host;
  context.self.engine = how.engine;
  context.self.generation = how.generation;
  context.self.secret = std::move(how.secret);
  context.office = std::move(office);
  context.timing.ping = how.health.heartbeat_interval;
  context.timing.silence_max = how.health.heartbeat_timeout;
  context.owner = owner_;
  connector_ = link::spawn_connector(system,
                                     std::make_shared<const link::link_context>(std::move(context)),
                                     "own node", "127.0.0.1", how.port);
}

node_link::~node_link() {
  caf::anon_send_exit(connector_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(owner_, caf::exit_reason::user_shutdown);
}

std::optional<error> node_link::refusal() const {
  std::lock_guard lock{shared_->mutex};
  return shared_->refused;
}

}  // namespace troupe::apps
