#include "apps/engine/node_link.hpp"

#include "actors/link/link_actor.hpp"

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
  context.self.secret = std::move(how.secret);
  context.office = how.news.office;
  context.dialler = std::move(how.dialler);
  context.timing.ping = how.health.heartbeat_interval;
  context.timing.silence_max = how.health.heartbeat_timeout;
  owner_ = spawn_link_owner(system, std::move(how.news));
  context.owner = owner_;
  connector_ = link::spawn_connector(system,
                                     std::make_shared<const link::link_context>(std::move(context)),
                                     "own node", "127.0.0.1", how.port);
  caf::anon_send(owner_, connector_);
}

node_link::~node_link() {
  // The owner first, so that it does not hear of the connector's end.
  caf::anon_send_exit(owner_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(connector_, caf::exit_reason::user_shutdown);
}

}  // namespace troupe::apps
