#include "actors/health/watchdog_actor.hpp"

#include "actors/health/probe.hpp"
#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"
#include "messages/job_codes.hpp"
#include "messages/wire.hpp"

#include <caf/all.hpp>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::health {

namespace {

using tick_atom = caf::atom_constant<caf::atom("wdtick")>;

/// How often silence is looked for.
constexpr std::chrono::milliseconds tick_interval{1'000};

struct watched {
  std::uint64_t generation = 0;
  progress_watch watch;
  probe_policy probing;
  tokeniser_watch tokenisers;
  transport_watch transport;
  judgement told = {};
  engine_account account = {};
  progress_watch::time_point heard = {};  ///< the account; before the first one: of it
  std::chrono::nanoseconds silent{0};     ///< since then, as far as it could have been heard
  caf::actor launcher = {};               ///< null: out of reach
  std::uint64_t probe = 0;                ///< number of the last one
  std::uint64_t probes_sent = 0;
  std::uint64_t probes_answered = 0;
};

struct watchdog_state {
  caf::event_based_actor* self;
  watchdog_options options;
  std::map<std::string, watched> engines;  ///< as many as the cluster file has for this host
  std::uint64_t incarnation = 0;           ///< tells our probes from an earlier watchdog's
  std::uint64_t next_probe = 1;
  progress_watch::time_point ticked_at = {};
  static constexpr const char* name = "watchdog";

  explicit watchdog_state(caf::event_based_actor* s) : self(s) {}
  ~watchdog_state() {
    if (options.office) options.office->unbind(watchdog_name(options.host), 0);
  }

  /// Null: of an earlier incarnation than the one that is watched.
  watched* find(const std::string& engine, std::uint64_t generation) {
    auto& e = engines[engine];
    if (generation < e.generation) return nullptr;
    if (generation > e.generation)
      e = watched{generation, progress_watch{options.limits}, probe_policy{options.probes},
                  tokeniser_watch{options.tokenisers}, transport_watch{options.transport}};
    return &e;
  }

  void judge(const engine_progress& x) {
    auto* known = find(x.engine, x.generation);
    if (!known) return;
    auto& e = *known;
    e.account = x.account;
    e.heard = now();
    e.silent = {};
    e.launcher = caf::actor_cast<caf::actor>(self->current_sender());
    auto is = e.watch.judge(x.account, e.heard);
    for (auto stuck : {e.tokenisers.judge(x.account.preparing, e.heard),
                       e.transport.judge(x.account.transport, e.heard)})
      if (stuck && is.what != verdict::hung) is = {verdict::hung, *std::move(stuck)};
    if (options.office) {
      const auto unanswered = e.probing.unanswered();
      if (e.probing.due(x.account, e.heard)) probe(x.engine, e);
      if (e.probing.unanswered() > unanswered)
        spdlog::warn("event=probe_unanswered host={} engine={} generation={} in_row={} sent={} "
                     "answered={}",
                     options.host, x.engine, x.generation, e.probing.unanswered(), e.probes_sent,
                     e.probes_answered);
      if (auto by_probes = e.probing.judge();
          by_probes.what != verdict::healthy && is.what != verdict::hung)
        is = std::move(by_probes);
    }
    tell(x.engine, e, std::move(is));
  }

  void tell(const std::string& engine, watched& e, judgement is) {
    if (std::exchange(e.told, is).what == is.what) return;
    spdlog::log(is.what == verdict::healthy ? spdlog::level::info : spdlog::level::warn,
                "event=engine_verdict host={} engine={} generation={} verdict={} evidence=\"{}\"",
                options.host, engine, e.generation, to_string(is.what), is.evidence);
    self->send(e.launcher, engine_judged{engine, e.generation, std::move(is)});
  }

  void in_reach(const engine_in_reach& x) {
    auto* e = find(x.engine, x.generation);
    if (!e || e->launcher) return;
    if (e->heard == progress_watch::time_point{}) e->heard = now();
    e->silent = {};
    e->launcher = caf::actor_cast<caf::actor>(self->current_sender());
  }

  void out_of_reach(const engine_out_of_reach& x) {
    if (auto i = engines.find(x.engine); i != engines.end() && i->second.generation <= x.generation)
      i->second.launcher = nullptr;
  }

  /// Accounts come by the very actor that may be stuck.
  void look_for_silence() {
    // This process may have stood still itself.
    const auto since = std::min<std::chrono::nanoseconds>(now() - ticked_at,
                                                          options.limits.account_gap_max);
    ticked_at = now();
    for (auto& [engine, e] : engines) {
      if (!e.launcher) continue;
      e.silent += since;
      if (e.silent <= options.limits.silence_max || is_fatal(e.told.what)) continue;
      tell(engine, e,
           {verdict::hung,
            fmt::format("for {} ms its worker has said nothing over a link that stands",
                        std::chrono::duration_cast<std::chrono::milliseconds>(e.silent).count())});
    }
    self->delayed_send(self, tick_interval, tick_atom::value);
  }
  static bool is_fatal(verdict v) { return v == verdict::hung || v == verdict::broken; }

  progress_watch::time_point now() const {
    return progress_watch::time_point{self->clock().now().time_since_epoch()};
  }

  verdicts_report report() const {
    verdicts_report r;
    for (const auto& [engine, e] : engines)
      r.engines.push_back({engine, e.generation, e.told, e.account,
                           std::chrono::duration_cast<std::chrono::milliseconds>(now() - e.heard),
                           e.probes_sent, e.probes_answered});
    return r;
  }

  void probe(const std::string& engine, watched& e) {
    e.probe = next_probe++;
    ++e.probes_sent;
    const auto me = watchdog_name(options.host);
    // Should it be given up the worker drops it by itself.
    options.office->send(
        {engine, e.generation}, {me, 0},
        make_probe({{incarnation, e.probe}, 0, 1}, me, options.probes.timeout * 2));
  }

  void answered(const msg::job_key& key, const char* failure) {
    if (key.id.high != incarnation) return;
    for (auto& [engine, e] : engines) {
      if (e.probe != key.id.low) continue;
      // The one before it is still there: the way is open, and it goes no further.
      if (failure != nullptr && failure == std::string_view{msg::probe_pending}) return;
      e.probe = 0;  // a failure after an answer is none
      ++e.probes_answered;
      if (failure != nullptr && msg::is_engine_fault(failure))
        e.probing.failed(failure);
      else
        e.probing.answered();
      // The way there and back is open all the same.
      if (failure != nullptr)
        spdlog::warn("event=probe_failed host={} engine={} generation={} code={}", options.host,
                     engine, e.generation, failure);
      return;
    }
  }
};

caf::behavior behavior(caf::stateful_actor<watchdog_state>* self, watchdog_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.incarnation = static_cast<std::uint64_t>(self->clock().now().time_since_epoch().count());
  if (s.options.office)
    s.options.office->bind(watchdog_name(s.options.host), 0, caf::actor_cast<caf::actor>(self));
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  s.ticked_at = s.now();
  self->delayed_send(self, tick_interval, tick_atom::value);
  return {
      [self](const engine_progress& x) { self->state.judge(x); },
      [self](const engine_out_of_reach& x) { self->state.out_of_reach(x); },
      [self](const engine_in_reach& x) { self->state.in_reach(x); },
      [self](tick_atom) { self->state.look_for_silence(); },
      [self](const describe_verdicts&) { return self->state.report(); },
      supervision::answers_for_itself(self),
      link::on<msg::TokenBatch>([&s](msg::TokenBatch::Reader in) {
        for (auto stream : in.getStreams()) s.answered(msg::read(stream.getKey()), nullptr);
      }),
      link::on<msg::Rejected>([&s](msg::Rejected::Reader in) {
        s.answered(msg::read(in.getKey()), in.getFailure().getCode().cStr());
      }),
      link::on<msg::JobFailed>([&s](msg::JobFailed::Reader in) {
        s.answered(msg::read(in.getKey()), in.getFailure().getCode().cStr());
      }),
  };
}

}  // namespace

std::string watchdog_name(const std::string& host) { return "watchdog/" + host; }

const char* to_string(verdict v) {
  switch (v) {
  case verdict::healthy:
    return "healthy";
  case verdict::slow:
    return "slow";
  case verdict::hung:
    return "hung";
  case verdict::broken:
    break;
  }
  return "broken";
}

caf::actor spawn_watchdog(caf::actor_system& system, watchdog_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::health
