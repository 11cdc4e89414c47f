#include "apps/engine/node_link.hpp"

#include "actors/link/link_actor.hpp"
#include "actors/link/secret_session.hpp"
#include "actors/link/sockets.hpp"

#include <caf/all.hpp>

#include <memory>
#include <utility>

namespace troupe::apps {

node_link::node_link(caf::actor_system& system, options how) {
  link::link_context context;
  context.self.cluster_id = how.cluster_id;
  context.self.process = link::random_process_id();
  context.self.kind = msg::ProcessKind::ENGINE;
  context.self.host = how.host;
  context.self.engine = how.engine;
  context.self.generation = how.generation;
  context.self.secret = how.secret;
  context.office = how.news.office;
  context.timing.ping = how.health.heartbeat_interval;
  context.timing.silence_max = how.health.heartbeat_timeout;
  owner_ = spawn_link_owner(system, std::move(how.news));
  context.owner = owner_;
  if (!how.dialler) {
    auto o = std::make_shared<link::secret_options>();
    o->secret = std::move(how.secret);
    o->on_refused = [owner = owner_](const error& why) {
      caf::anon_send(owner, link::link_refused{"own node", why, true});
    };
    how.dialler = dialler_ = link::spawn_dialler(system, link::secret_guard(std::move(o)));
  }
  context.dialler = std::move(how.dialler);
  connector_ = link::spawn_connector(system,
                                     std::make_shared<const link::link_context>(std::move(context)),
                                     "own node", "127.0.0.1", how.port);
  caf::anon_send(owner_, connector_);
}

node_link::~node_link() {
  // The owner first, so that it does not hear of the connector's end.
  caf::anon_send_exit(owner_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(connector_, caf::exit_reason::user_shutdown);
  if (dialler_) link::end_dialler(dialler_);
}

}  // namespace troupe::apps
