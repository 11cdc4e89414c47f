#include "actors/supervision/supervisor.hpp"
#include "messages/base/planted.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::supervision {

namespace {

using start_atom = caf::atom_constant<caf::atom("supstart")>;
using kill_atom = caf::atom_constant<caf::atom("supkill")>;

struct child {
  child_spec spec;
  caf::actor actor;
  std::uint64_t generation = 0;
  std::uint32_t starts = 0;
  bool stopping = false;
  std::string last_end;
};

std::string describe(const caf::actor_system& system, const caf::error& reason) {
  return reason ? system.render(reason) : "normal";
}

bool is_clean(const caf::error& reason) {
  return !reason || reason == caf::exit_reason::normal || reason == caf::exit_reason::user_shutdown;
}

struct supervisor_state {
  caf::event_based_actor* self;
  std::string title;
  std::vector<child> children;
  std::unique_ptr<restart_policy> policy;
  std::uint64_t next_generation = 1;
  /// To be stopped and, unless we end, started again at that time: each waits for its own.
  std::map<std::size_t, restart_policy::time_point> pending;
  std::uint64_t epoch = 0;                ///< of the start timer; an older timer is void
  std::optional<caf::error> ending_with;  ///< set once all must stop
  static constexpr const char* name = "supervisor";

  explicit supervisor_state(caf::event_based_actor* s) : self(s) {}
  ~supervisor_state() {
    for (auto i = children.rbegin(); i != children.rend(); ++i)
      if (i->actor) caf::anon_send_exit(i->actor, caf::exit_reason::user_shutdown);
  }

  restart_policy::time_point now() const {
    return restart_policy::time_point{self->clock().now().time_since_epoch()};
  }

  void start_children(const std::vector<std::size_t>& which) {
    for (auto i : which) {
      // A failed start may have changed the plan: the rest is then part of `pending`.
      if (ending_with || !start_child(i)) return;
    }
  }

  /// False when its failure has changed the plan.
  bool start_child(std::size_t i) {
    auto& c = children[i];
    c.generation = next_generation++;
    ++c.starts;
    c.stopping = false;
    pending.erase(i);
    auto started = c.spec.start(c.generation);
    if (!started) return child_ended(i, ending::failed, started.error().message);
    c.actor = *std::move(started);
    self->monitor(c.actor);
    return true;
  }

  void down(const caf::down_msg& d) {
    auto i = std::find_if(children.begin(), children.end(),
                          [&](const child& c) { return c.actor && c.actor.address() == d.source; });
    if (i == children.end()) return;  // an older incarnation
    if (planted::is(planted::bug::drop_down) && !i->stopping) return;
    i->actor = nullptr;
    i->last_end = describe(self->system(), d.reason);
    const auto index = static_cast<std::size_t>(i - children.begin());
    if (std::exchange(i->stopping, false)) return advance();  // as ordered
    child_ended(index, is_clean(d.reason) ? ending::clean : ending::failed, i->last_end);
  }

  /// True when nothing follows from it.
  bool child_ended(std::size_t i, ending how, const std::string& why) {
    auto& c = children[i];
    c.last_end = why;
    if (ending_with) {
      advance();
      return false;
    }
    const auto d = policy->decide(i, how, now());
    switch (d.what) {
    case decision::kind::ignore:
      if (how != ending::clean)
        spdlog::warn("event=child_not_restarted supervisor={} child={} reason=\"{}\"", title,
                     c.spec.id, why);
      return true;
    case decision::kind::escalate:
      spdlog::error("event=supervisor_escalates supervisor={} child={} reason=\"{}\"", title,
                    c.spec.id, why);
      end_all(caf::make_error(caf::sec::runtime_error,
                              title + ": " + c.spec.id + " ended too often, last: " + why));
      return false;
    case decision::kind::restart:
      break;
    }
    spdlog::warn(
        "event=child_restarts supervisor={} child={} generation={} delay_ms={} reason=\"{}\"",
        title, c.spec.id, c.generation, d.delay.count(), why);
    for (auto k : d.children) {
      auto& due = pending[k];
      due = std::max(due, now() + d.delay);
    }
    advance();
    return false;
  }

  /// Stops what is pending, last first, one at a time; then starts each when it is due, or ends.
  void advance() {
    for (auto i = pending.rbegin(); i != pending.rend(); ++i) {
      auto& c = children[i->first];
      if (!c.actor) continue;
      if (!c.stopping) {
        c.stopping = true;
        self->send_exit(c.actor, caf::exit_reason::user_shutdown);
        self->delayed_send(self, c.spec.shutdown, kill_atom::value,
                           static_cast<std::uint64_t>(i->first), c.generation);
      }
      return;
    }
    ++epoch;
    if (ending_with) return self->quit(*ending_with);
    if (pending.empty()) return;
    auto due = restart_policy::time_point::max();
    for (const auto& [i, at] : pending) due = std::min(due, at);
    self->delayed_send(self, std::max<std::chrono::nanoseconds>(due - now(), {}), start_atom::value,
                       epoch);
  }

  void start_pending(std::uint64_t e) {
    if (e != epoch || ending_with) return;
    std::vector<std::size_t> which;
    for (const auto& [i, at] : pending)
      if (at <= now()) which.push_back(i);
    start_children(which);
    if (!ending_with) advance();  // the timer of those that are due later
  }

  void kill(std::size_t i, std::uint64_t generation) {
    auto& c = children[i];
    if (c.actor && c.stopping && c.generation == generation) {
      spdlog::warn(
          "event=child_killed supervisor={} child={} reason=\"it did not end within {} ms\"", title,
          c.spec.id, c.spec.shutdown.count());
      self->send_exit(c.actor, caf::exit_reason::kill);
    }
  }

  void end_all(caf::error reason) {
    if (ending_with) return;
    ending_with = std::move(reason);
    for (std::size_t i = 0; i < children.size(); ++i) pending.try_emplace(i);
    advance();
  }

  children_report report() const {
    children_report r{title, {}};
    for (std::size_t i = 0; i < children.size(); ++i) {
      const auto& c = children[i];
      child_report x;
      using condition = child_report::condition;
      x.now = c.actor
                  ? (c.stopping ? condition::stopping : condition::running)
                  : (pending.contains(i) && !ending_with ? condition::waiting : condition::ended);
      x.id = c.spec.id;
      x.generation = c.generation;
      x.restarts = c.starts > 0 ? c.starts - 1 : 0;
      x.last_end = c.last_end;
      x.actor = c.actor;
      r.children.push_back(std::move(x));
    }
    return r;
  }
};

caf::behavior behavior(caf::stateful_actor<supervisor_state>* self, const supervisor_options& o) {
  auto& s = self->state;
  s.title = o.name;
  s.next_generation = o.first_generation;
  std::vector<restart_kind> kinds;
  std::vector<std::size_t> all;
  for (const auto& spec : o.children) {
    all.push_back(s.children.size());
    s.children.push_back(child{spec, nullptr, 0, 0, false, {}});
    kinds.push_back(spec.restart);
  }
  s.policy = std::make_unique<restart_policy>(o.how, o.limits, std::move(kinds), o.seed);
  self->set_down_handler([self](caf::down_msg& d) { self->state.down(d); });
  self->set_exit_handler([self](caf::exit_msg& e) {
    self->state.end_all(is_clean(e.reason) ? caf::make_error(caf::exit_reason::user_shutdown)
                                           : e.reason);
  });
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  for (auto i : all) s.pending.try_emplace(i);
  s.start_children(all);
  return {
      [self](start_atom, std::uint64_t epoch) { self->state.start_pending(epoch); },
      [self](kill_atom, std::uint64_t child, std::uint64_t generation) {
        self->state.kill(child, generation);
      },
      [self](const describe_children&) { return self->state.report(); },
      [self](const describe_actor&) {
        return actor_report{self->mailbox().size(), {}, self->state.report().children};
      },
  };
}

}  // namespace

caf::actor spawn_supervisor(caf::actor_system& system, supervisor_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::supervision
