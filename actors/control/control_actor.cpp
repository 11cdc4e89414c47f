#include "actors/control/control_actor.hpp"

#include "actors/control/control_metrics.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::control {

/// From the store: what became of the record that was given to it.
struct record_written {
  expected<void> result;
};

}  // namespace troupe::control

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::control::record_written)

namespace troupe::control {

namespace {

using wake_atom = caf::atom_constant<caf::atom("ctrlwake")>;
using repeat_atom = caf::atom_constant<caf::atom("ctrlrepeat")>;

struct control_state {
  caf::event_based_actor* self;
  control_options options;
  std::unique_ptr<control_policy> policy;
  std::optional<control_metrics> metrics;
  std::set<std::string> followers;  ///< that the directory knows
  assignment_number told;           ///< the last that all of them were sent
  /// What is published, as a message: made once, for all followers.
  std::optional<msg::envelope<msg::Assignment>> frozen;
  assignment_number frozen_number;
  std::optional<control_policy::time_point> wakes;
  std::uint64_t wake = 0;  ///< of several timers the last one counts
  std::string said;        ///< the last problem that was logged
  static constexpr const char* name = "control";

  explicit control_state(caf::event_based_actor* s) : self(s) {}
  ~control_state() {
    if (options.office) options.office->unbind(control_name, options.generation);
  }

  control_policy::time_point now() const {
    return control_policy::time_point{self->clock().now().time_since_epoch()};
  }

  /// After each event.
  void go_on() {
    if (auto r = policy->due(now()))
      // From any thread, and maybe when this actor is no more.
      options.state->write(*std::move(r),
                           [me = caf::actor_cast<caf::actor>(self)](expected<void> result) {
                             caf::anon_send(me, record_written{std::move(result)});
                           });
    show();
    wake_up();
  }

  void written(const record_written& x) {
    policy->written(x.result, now());
    if (const auto* a = policy->published(); a != nullptr && a->number() != told) {
      told = a->number();
      const auto v = policy->look(now());
      spdlog::info("event=shards_assigned term={} generation={} slices={} imbalance={:.2f} "
                   "moved={:.3f}",
                   told.term, told.generation, a->slices().size(), v.imbalance, v.churn);
      if (metrics) metrics->assigned(v.churn);
      for (const auto& who : followers) tell(who);
    }
    go_on();
  }

  void tell(const std::string& who) {
    const auto* a = policy->published();
    if (a == nullptr) return;
    if (!frozen || frozen_number != a->number()) {
      msg::draft<msg::Assignment> d{a->slices().size() * 40 + 4'096};
      write(*d, *a);
      auto e = std::move(d).freeze();
      if (!e) return;
      frozen = *std::move(e);
      frozen_number = a->number();
    }
    options.office->send({who, 0}, {control_name, options.generation}, *frozen);
  }

  void changed(const directory::directory_changed& x) {
    for (const auto& e : x.what.removed) followers.erase(e.name);
    for (const auto& e : x.what.added_or_changed)
      if (e.role == msg::Role::ROUTER || e.role == msg::Role::REQUESTS) come(e);
    policy->changed(x.what, x.lost_host, now());
    go_on();
  }
  void come(const directory::entry& e) {
    followers.insert(e.name);
    // Whatever has changed of it: one that it has had it drops.
    tell(e.name);
  }

  void heard(const link::origin& from, msg::ShardLoad::Reader in) {
    auto account = read(in);
    // What it goes by was lost on its way.
    const auto* a = policy->published();
    if (a != nullptr && account.goes_by < a->number()) tell(from.from.name);
    policy->heard(std::move(account), now());
    go_on();
  }

  void repeat() {
    for (const auto& who : followers) tell(who);
    self->delayed_send(self, repeat_after, repeat_atom::value);
  }

  void wake_up() {
    const auto at = policy->wake_at();
    if (wakes && *wakes == at) return;
    wakes = at;
    ++wake;
    if (at == control_policy::time_point::max()) return;
    const auto wait = std::max(at - now(), control_policy::clock::duration{0});
    self->delayed_send(self, wait, wake_atom::value, wake);
  }
  void woken(std::uint64_t which) {
    if (which != wake) return;
    wakes.reset();
    go_on();
  }

  void show() {
    auto v = policy->look(now());
    if (metrics) metrics->show(v);
    if (v.problem == said) return;
    said = std::move(v.problem);
    if (said.empty())
      spdlog::info("event=shards_assignable");
    else
      spdlog::error("event=shards_not_assigned reason=\"{}\"", said);
  }

  control_report report() {
    const auto v = policy->look(now());
    control_report r{v.number, std::nullopt, v.imbalance, v.churn, v.lost, v.problem};
    if (v.made) r.made_ago = std::chrono::duration_cast<std::chrono::milliseconds>(now() - *v.made);
    return r;
  }
};

caf::behavior behavior(caf::stateful_actor<control_state>* self, control_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.policy = std::make_unique<control_policy>(s.options.shards, s.options.limits,
                                              s.options.state->last(), s.now());
  if (s.options.metrics) s.metrics.emplace(s.options.metrics);
  s.options.office->bind(control_name, s.options.generation, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  self->send(s.options.directory, directory::subscribe{caf::actor_cast<caf::actor>(self)});
  self->delayed_send(self, repeat_after, repeat_atom::value);
  s.go_on();
  return {
      [self](const directory::directory_changed& x) { self->state.changed(x); },
      link::on<msg::ShardLoad>(
          [&s](const link::origin& from, msg::ShardLoad::Reader in) { s.heard(from, in); }),
      [self](const record_written& x) { self->state.written(x); },
      [self](wake_atom, std::uint64_t which) { self->state.woken(which); },
      [self](repeat_atom) { self->state.repeat(); },
      [self](const describe_control&) { return self->state.report(); },
      supervision::answers_for_itself(self,
                                      [&s] {
                                        const auto v = s.policy->look(s.now());
                                        return supervision::actor_facts{
                                            {"term", std::to_string(v.number.term)},
                                            {"generation", std::to_string(v.number.generation)},
                                            {"imbalance", fmt::format("{:.2f}", v.imbalance)},
                                            {"lost", std::to_string(v.lost.size())},
                                            {"problem", v.problem.empty() ? "none" : v.problem}};
                                      }),
  };
}

}  // namespace

caf::actor spawn_control(caf::actor_system& system, control_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::control
