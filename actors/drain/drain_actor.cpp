#include "actors/drain/drain_actor.hpp"

#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <map>
#include <utility>

namespace troupe::drain {

namespace {

using tick_atom = caf::atom_constant<caf::atom("draintick")>;

/// How often silent launchers are looked for.
constexpr std::chrono::milliseconds tick_interval{500};

struct drain_state {
  struct run {
    drain_order order;
    drain_run course;
  };
  caf::event_based_actor* self;
  drain_options options;
  std::shared_ptr<const directory::snapshot> all = std::make_shared<directory::snapshot>();
  std::map<std::uint64_t, run> runs;
  std::uint64_t next_run = 1;
  static constexpr const char* name = "drain";

  explicit drain_state(caf::event_based_actor* s) : self(s) {}
  ~drain_state() {
    if (options.office) options.office->unbind(drain_name(options.host), 0);
  }

  drain_run::time_point now() const {
    return drain_run::time_point{self->clock().now().time_since_epoch()};
  }

  void ordered(const drain_order& x) {
    auto engines = engines_of(*all, x.at);
    std::string refused;
    if (engines.empty()) refused = "no engine of this cluster is meant by '" + x.at.name + "'";
    if (runs.size() >= runs_max) refused = "too many orders are being carried out already";
    if (!refused.empty()) {
      if (x.reply_to) self->send(x.reply_to, drain_progress{x.id, {}, true, std::move(refused)});
      return;
    }
    run_limits limits;
    limits.at_once = x.at_once;
    limits.whole_max = (x.undrain ? std::chrono::milliseconds{0} : x.within) + options.restart_max;
    const auto number = next_run++;
    spdlog::info("event=drain_ordered order={} target={} undrain={} engines={}", number, x.at.name,
                 x.undrain, engines.size());
    runs.emplace(number, run{x, drain_run{std::move(engines), limits}});
    go_on(number);
  }

  /// Tells the next engines, and whoever asked; forgets what is over.
  void go_on(std::uint64_t number) {
    auto i = runs.find(number);
    if (i == runs.end()) return;
    auto& r = i->second;
    for (const auto& engine : r.course.next(now())) tell(number, r.order, engine);
    const bool over = r.course.over();
    if (r.order.reply_to)
      self->send(r.order.reply_to, drain_progress{r.order.id, r.course.engines(), over, {}});
    if (over) runs.erase(i);
  }

  void tell(std::uint64_t number, const drain_order& x, const std::string& engine) {
    msg::draft<msg::DrainOrder> d;
    d->setId(number);
    d->setReplyTo(drain_name(options.host));
    if (x.undrain) {
      d->setUndrain();
    } else {
      auto order = d->initDrain();
      order.setWithinMs(static_cast<std::uint32_t>(x.within.count()));
      order.setMoveAfterMs(static_cast<std::uint32_t>(x.move_after.count()));
      order.setThen(x.then);
    }
    options.office->send({launcher_of(engine), 0}, {drain_name(options.host), 0},
                         std::move(d).freeze().value());
  }

  void heard(msg::DrainStatus::Reader in) {
    auto i = runs.find(in.getId());
    if (i == runs.end()) return;
    engine_progress news;
    news.phase = in.getPhase();
    news.jobs_left = in.getJobsLeft();
    news.over = in.getOver();
    news.failure = in.getFailure().getMessage().cStr();
    i->second.course.heard(in.getEngine().cStr(), news);
    go_on(in.getId());
  }

  void changed(const directory::directory_changed& x) {
    all = x.all;
    if (x.what.removed.empty()) return;
    for (auto& [number, r] : runs)
      for (const auto& e : x.what.removed) r.course.lost(e.name);
    go_on_all();
  }

  void go_on_all() {
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, r] : runs) numbers.push_back(number);
    for (auto number : numbers) go_on(number);
  }

  void tick() {
    bool changed = false;
    for (auto& [number, r] : runs) changed = r.course.tick(now()) || changed;
    if (changed) go_on_all();
    self->delayed_send(self, tick_interval, tick_atom::value);
  }
};

caf::behavior behavior(caf::stateful_actor<drain_state>* self, drain_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.next_run = s.options.first_run;
  s.options.office->bind(drain_name(s.options.host), 0, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  self->send(s.options.directory, directory::subscribe{caf::actor_cast<caf::actor>(self)});
  self->delayed_send(self, tick_interval, tick_atom::value);
  return {
      [self](const drain_order& x) { self->state.ordered(x); },
      link::on<msg::DrainStatus>([&s](msg::DrainStatus::Reader in) { s.heard(in); }),
      [self](const directory::directory_changed& x) { self->state.changed(x); },
      [self](tick_atom) { self->state.tick(); },
      supervision::answers_for_itself(self),
  };
}

}  // namespace

std::string drain_name(const std::string& host) { return "drain/" + host; }

caf::actor spawn_drain(caf::actor_system& system, drain_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::drain
