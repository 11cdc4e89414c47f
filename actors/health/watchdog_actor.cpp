#include "actors/health/watchdog_actor.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <map>
#include <utility>

namespace troupe::health {

namespace {

struct watched {
  std::uint64_t generation = 0;
  progress_watch watch;
  verdict told = verdict::healthy;
};

struct watchdog_state {
  caf::event_based_actor* self;
  watchdog_options options;
  std::map<std::string, watched> engines;  ///< as many as the cluster file has for this host
  static constexpr const char* name = "watchdog";

  explicit watchdog_state(caf::event_based_actor* s) : self(s) {}

  void judge(const engine_progress& x) {
    auto& e = engines[x.engine];
    if (x.generation < e.generation) return;
    if (x.generation > e.generation)
      e = {x.generation, progress_watch{options.limits}, verdict::healthy};
    auto is = e.watch.judge(x.account,
                            progress_watch::time_point{self->clock().now().time_since_epoch()});
    if (std::exchange(e.told, is.what) == is.what) return;
    spdlog::log(is.what == verdict::healthy ? spdlog::level::info : spdlog::level::warn,
                "event=engine_verdict host={} engine={} generation={} verdict={} evidence=\"{}\"",
                options.host, x.engine, x.generation, to_string(is.what), is.evidence);
    self->send(caf::actor_cast<caf::actor>(self->current_sender()),
               engine_judged{x.engine, x.generation, std::move(is)});
  }
};

caf::behavior behavior(caf::stateful_actor<watchdog_state>* self, watchdog_options options) {
  self->state.options = std::move(options);
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  return {
      [self](const engine_progress& x) { self->state.judge(x); },
  };
}

}  // namespace

const char* to_string(verdict v) {
  switch (v) {
  case verdict::healthy:
    return "healthy";
  case verdict::slow:
    return "slow";
  case verdict::hung:
    break;
  }
  return "hung";
}

caf::actor spawn_watchdog(caf::actor_system& system, watchdog_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::health
