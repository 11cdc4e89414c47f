#include "actors/health/watchdog_actor.hpp"

#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <map>
#include <utility>

namespace troupe::health {

namespace {

struct watched {
  std::uint64_t generation = 0;
  progress_watch watch;
  judgement told = {};
  engine_account account = {};
  progress_watch::time_point heard = {};  ///< the account
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
    if (x.generation > e.generation) e = {x.generation, progress_watch{options.limits}};
    e.account = x.account;
    e.heard = now();
    auto is = e.watch.judge(x.account, e.heard);
    if (std::exchange(e.told, is).what == is.what) return;
    spdlog::log(is.what == verdict::healthy ? spdlog::level::info : spdlog::level::warn,
                "event=engine_verdict host={} engine={} generation={} verdict={} evidence=\"{}\"",
                options.host, x.engine, x.generation, to_string(is.what), is.evidence);
    self->send(caf::actor_cast<caf::actor>(self->current_sender()),
               engine_judged{x.engine, x.generation, std::move(is)});
  }

  progress_watch::time_point now() const {
    return progress_watch::time_point{self->clock().now().time_since_epoch()};
  }

  verdicts_report report() const {
    verdicts_report r;
    for (const auto& [engine, e] : engines)
      r.engines.push_back({engine, e.generation, e.told, e.account,
                           std::chrono::duration_cast<std::chrono::milliseconds>(now() - e.heard)});
    return r;
  }
};

caf::behavior behavior(caf::stateful_actor<watchdog_state>* self, watchdog_options options) {
  self->state.options = std::move(options);
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  return {
      [self](const engine_progress& x) { self->state.judge(x); },
      [self](const describe_verdicts&) { return self->state.report(); },
      supervision::answers_for_itself(self),
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
