#include "actors/supervision/watch.hpp"

#include <caf/all.hpp>

#include <utility>

namespace troupe::supervision {

namespace {

caf::behavior watch(caf::event_based_actor* self, const std::vector<watched_actor>& actors,
                    const std::function<void(const std::string&)>& on_end) {
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_down_handler([self, actors, on_end](caf::down_msg& down) {
    const auto reason = down.reason ? self->system().render(down.reason) : "normal";
    for (const auto& a : actors)
      if (a.actor.address() == down.source) on_end(a.name + " has ended: " + reason);
  });
  for (const auto& a : actors) self->monitor(a.actor);
  return {[](caf::unit_t) {}};
}

}  // namespace

caf::actor spawn_watch(caf::actor_system& system, std::vector<watched_actor> actors,
                       std::function<void(const std::string& why)> on_end) {
  return system.spawn(watch, std::move(actors), std::move(on_end));
}

}  // namespace troupe::supervision
