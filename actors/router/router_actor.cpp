#include "actors/router/router_actor.hpp"

#include "actors/control/shard_key.hpp"
#include "actors/link/guarded.hpp"
#include "actors/router/load_book.hpp"
#include "actors/router/router_metrics.hpp"
#include "actors/router/shard_peers.hpp"
#include "actors/router/shard_state.hpp"
#include "actors/supervision/introspection.hpp"
#include "messages/entry_state.hpp"
#include "messages/job_key.hpp"

#include <caf/all.hpp>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>

namespace troupe::router {

namespace {

using again_atom = caf::atom_constant<caf::atom("rtagain")>;
using account_atom = caf::atom_constant<caf::atom("rtaccount")>;
using complete_atom = caf::atom_constant<caf::atom("rtcomplete")>;

route_query read(msg::RouteRequest::Reader in) {
  route_query q;
  q.model = in.getModel().cStr();
  q.prompt_bytes = in.getPromptBytes();
  for (auto h : in.getChain()) q.chain.push_back(h);
  q.max_tokens = in.getMaxTokens();
  q.choices = in.getChoices();
  for (auto name : in.getExclude()) q.exclude.emplace_back(name.cStr());
  q.resumed_tokens = in.getResumedTokens();
  q.session = in.getSession().cStr();
  q.move_from = in.getMoveFrom().cStr();
  q.quarantine = in.getQuarantine();
  q.workload = in.getWorkload().cStr();
  return q;
}

void write(msg::WorkerRef::Builder out, const chosen_worker& w, bool same_host) {
  out.setName(w.name);
  out.setGeneration(w.generation);
  out.setTransferAddress(kj::arrayPtr(w.transfer_address.data(), w.transfer_address.size()));
  out.setSameHost(same_host);
}

msg::TransferPlan wire_plan(plan p) {
  switch (p) {
  case plan::local:
    return msg::TransferPlan::LOCAL;
  case plan::full:
    return msg::TransferPlan::FULL;
  case plan::from_position:
    return msg::TransferPlan::FROM_POSITION;
  case plan::move:
    return msg::TransferPlan::MOVE;
  case plan::decode_prefills:
    break;
  }
  return msg::TransferPlan::DECODE_PREFILLS;
}

worker_report read(msg::WorkerReport::Reader r) {
  return {r.getRunning(),
          r.getQueued(),
          r.getQueuedTokens(),
          r.getKvUsedTokens(),
          r.getKvCachedTokens(),
          r.getKvTotalTokens(),
          r.getPrefilledTokens(),
          r.getSampledTokens(),
          r.getBytesPerToken(),
          r.getIdle(),
          r.getBusyUs(),
          r.getSteps(),
          r.getPreparing() + r.getUnprepared()};
}

std::uint64_t random_lease() {
  std::random_device draw;
  return std::uint64_t{draw()} << 32U | draw();
}

/// The assignment that a hub was told of.
struct hub_told {
  std::uint64_t incarnation = 0;
  control::assignment_number number;
  time_point when;
};

/// Of `requests/<host>`.
std::string host_of(const msg::address& hub) {
  const auto slash = hub.name.find('/');
  return slash == std::string::npos ? hub.name : hub.name.substr(slash + 1);
}

struct router_state {
  caf::event_based_actor* self;
  router_options options;
  std::unique_ptr<router_policy> policy;
  std::unique_ptr<shard_peers> peers;
  std::unique_ptr<load_book> load;  ///< by the assignment that this shard goes by
  std::shared_ptr<const directory::snapshot> around;
  msg::EntryState state = msg::EntryState::STARTING;
  bool waits = true;  ///< for what workers hold, before it is ready
  bool asks_again = false;
  struct asked_worker {
    std::uint64_t generation = 0;
    std::uint64_t coming = 0;  ///< the message of its answer that was due at the last look
  };
  std::map<std::string, asked_worker> asked;  ///< for everything
  std::chrono::milliseconds ask_again = ask_again_after;
  std::uint64_t requests = 0;   ///< decisions
  std::uint64_t misrouted = 0;  ///< of those, for keys of others
  std::optional<router_metrics> metrics;
  std::map<std::string, hub_told> told;  ///< by host of the cluster
  std::mt19937_64 random;
  static constexpr const char* name = "router";

  explicit router_state(caf::event_based_actor* s) : self(s) {}
  ~router_state() {
    if (!options.office) return;
    options.office->unbind(options.name, options.generation);
    caf::anon_send(options.directory, directory::remove_entry{options.name, options.generation});
  }

  msg::address me() const { return {options.name, options.generation}; }

  time_point now() const { return time_point{self->clock().now().time_since_epoch()}; }

  // -- its place in the directory ---------------------------------------------------

  void announce(msg::EntryState next) {
    state = next;
    directory::entry e;
    e.name = options.name;
    e.generation = options.generation;
    e.role = msg::Role::ROUTER;
    e.state = state;
    self->send(options.directory, directory::set_entry{std::move(e)});
  }

  void changed(const directory::directory_changed& x) {
    policy->update(x.what);
    around = x.all;
    peers->update(*x.all);
    policy->set_shards(peers->deciding());
    for (const auto& e : x.what.removed) asked.erase(e.name);
    if (!x.lost_host.empty()) policy->lose_host(x.lost_host);
    ask_for_all(false);
    complete(false);
    const auto is_shard = [](const directory::entry& e) { return e.role == msg::Role::ROUTER; };
    if (std::any_of(x.what.added_or_changed.begin(), x.what.added_or_changed.end(), is_shard) ||
        std::any_of(x.what.removed.begin(), x.what.removed.end(), is_shard))
      hand_over();
  }

  /// What this shard has missed of a worker, its own start or a lost link, is not told by itself.
  void ask_for_all(bool again) {
    bool any = false;
    for (const auto& w : policy->untold()) {
      any = true;
      auto& known = asked[w.worker];
      const bool fresh = known.generation != w.generation;
      if (!again && !fresh) continue;
      // Its answer is under way, and gets on.
      const bool comes = w.coming > 0 && w.coming != std::exchange(known.coming, w.coming);
      if (!fresh && comes) continue;
      if (fresh) ask_again = ask_again_after;
      known = {w.generation, 0};
      policy->expect_all(w.worker, w.generation);
      ask_for_all(w.worker, w.generation);
    }
    if (!any) ask_again = ask_again_after;
    if (!any || asks_again) return;
    asks_again = true;
    self->delayed_send(self, ask_again, again_atom::value);
    ask_again = std::min(2 * ask_again, ask_again_at_most);
  }
  void ask_for_all(const std::string& worker, std::uint64_t generation) {
    msg::draft<msg::PrefixResync> d;
    d->setWorker(worker);
    d->setGeneration(generation);
    reply({worker, generation}, std::move(d).freeze());
  }

  /// Who would decide without knowing what is cached where had better leave it to others.
  void complete(bool in_any_case) {
    if (!waits) return;
    const bool whole = peers->sees_all_hosts() && policy->untold_ready() == 0;
    if (!whole && !in_any_case) return;
    // It could only refuse what others can do.
    if (!policy->any_ready() && peers->deciding() > 1) {
      if (in_any_case) self->delayed_send(self, complete_within, complete_atom::value);
      return;
    }
    waits = false;
    if (state != msg::EntryState::STARTING) return;
    spdlog::info("event=shard_ready shard={} untold={} blocks={}", options.name,
                 policy->untold_count(), policy->index().blocks());
    announce(msg::EntryState::READY);
  }

  // -- decisions --------------------------------------------------------------------

  void route(const link::origin& from, msg::RouteRequest::Reader in) {
    auto q = read(in);
    q.host = host_of(from.from);
    q.incarnation = from.from.generation;
    q.now = now();
    q.draw = random();
    // All is read before a lease is granted: one that nobody is told of would never come back.
    const msg::address to{in.getReplyTo().cStr(), 0};
    const auto key = msg::read(in.getKey());
    catch_up();
    tell_newer(from.from, q.host, {in.getTerm(), in.getAssignmentGeneration()});
    // A hub of an older protocol doesn't know of keys.
    const bool has_key = in.getShardKey() != 0;
    const auto place = has_key ? in.getShardKey()
                               : control::shard_key(q.model, q.session, q.chain, random());
    ++requests;
    const bool others = has_key && !load->by().has(options.name, place);
    if (others) ++misrouted;
    if (metrics) metrics->decided(others);
    q.shard_key = place;
    auto answer = policy->decide(q);
    const auto* chosen = std::get_if<route_choice>(&answer);
    if (has_key) load->note(place, chosen ? chosen->granted_seconds : 0, q.now);
    if (const auto* c = chosen) {
      msg::draft<msg::Route> d;
      msg::write(d->initKey(), key);
      d->setPlan(wire_plan(c->how));
      const bool same_host = c->prefill.host == c->decode.host;
      if (!c->prefill.name.empty()) write(d->initPrefill(), c->prefill, same_host);
      write(d->initDecode(), c->decode, same_host);
      d->setLease(c->lease);
      d->setReason(c->reason);
      auto answer_message = std::move(d).freeze();
      if (!answer_message) policy->release(c->lease);
      return reply(to, std::move(answer_message));
    }
    const auto& r = std::get<route_refusal>(answer);
    msg::draft<msg::RouteRefused> d;
    msg::write(d->initKey(), key);
    auto f = d->initFailure();
    f.setCode(r.code);
    f.setMessage(r.message);
    f.setHttpStatus(static_cast<std::uint16_t>(r.http_status));
    f.setRetryAfterMs(r.retry_after_ms);
    reply(to, std::move(d).freeze());
  }

  template <class Schema>
  void reply(const msg::address& to, expected<msg::envelope<Schema>> e) {
    if (e)
      options.office->send(to, me(), *std::move(e));
    else
      spdlog::error("event=answer_too_large to={} reason=\"{}\"", to.name, e.error().message);
  }

  void assign(msg::Assignment::Reader in) {
    auto a = control::read(in);
    if (!a) {
      spdlog::warn("event=assignment_refused shard={} code={} reason=\"{}\"", options.name,
                   a.error().code, a.error().message);
      return;
    }
    go_by(std::make_shared<const control::assignment>(*std::move(a)));
  }
  void go_by(std::shared_ptr<const control::assignment> next) {
    if (next->number() <= load->by().number()) return;
    load->assign(std::move(next));
    hand_over();
  }
  /// A shard of a node that has just begun hears as much as its hub.
  void catch_up() {
    if (options.node) go_by(options.node->get());
  }
  /// A hub whose node began while the control host was away knows only what the cluster file says.
  void tell_newer(const msg::address& hub, const std::string& host,
                  control::assignment_number goes_by) {
    const auto& by = load->by();
    if (goes_by >= by.number() || !options.places.contains(host)) return;
    auto& last = told[host];
    if (last.incarnation == hub.generation && last.number == by.number() &&
        now() - last.when < tell_again_after)
      return;
    last = {hub.generation, by.number(), now()};
    msg::draft<msg::Assignment> d{by.slices().size() * 40 + 4'096};
    control::write(*d, by);
    reply({hub.name, 0}, std::move(d).freeze());
  }

  // -- sessions whose keys are another's now ------------------------------------------

  void drain() {
    if (state != msg::EntryState::DRAINING) announce(msg::EntryState::DRAINING);
  }

  /// By the directory's word that this one drains, too: then hubs ask the others. A session that
  /// nobody else would be asked for stays. A session's key is its draw among several shards.
  void hand_over() {
    if (!around) return;
    const auto& by = load->by();
    const auto here = around->find(options.name);
    const bool drains = here != around->end() && here->second.state == msg::EntryState::DRAINING;
    const auto owner = [&](control::key64 key) -> const std::string& {
      return control::choose_shard(by, *around, key, key, 0);
    };
    auto leaving = policy->sessions().take([&](control::key64 key) {
      return (drains || by.shard_of(key, key) != options.name) && owner(key) != options.name;
    });
    std::map<std::string, std::vector<session_book::moving>> by_owner;
    for (auto& s : leaving) by_owner[owner(s.shard_key)].push_back(std::move(s));
    for (const auto& [shard, sessions] : by_owner) {
      auto states = make_states(me(), by.number(), sessions);
      if (!states) {
        spdlog::error("event=shard_state_too_large shard={} to={} reason=\"{}\"", options.name,
                      shard, states.error().message);
        continue;
      }
      spdlog::info("event=sessions_handed_over shard={} to={} sessions={}", options.name, shard,
                   sessions.size());
      for (auto& e : *states) options.office->send({shard, 0}, me(), std::move(e));
    }
  }

  void taken_over(msg::ShardState::Reader in) {
    for (auto& s : router::read(in)) policy->sessions().add(std::move(s));
  }

  /// To the control host, if there is one.
  void tell_account() {
    self->delayed_send(self, account_interval, account_atom::value);
    catch_up();
    if (peers->control_hosts().empty()) return;
    msg::draft<msg::ShardLoad> d;
    control::write(*d, account());
    auto e = std::move(d).freeze();
    if (!e) {
      spdlog::error("event=account_too_large shard={} reason=\"{}\"", options.name,
                    e.error().message);
      return;
    }
    for (const auto& host : peers->control_hosts()) options.office->send({host, 0}, me(), *e);
  }

  void released(const link::origin& from, msg::RouteRelease::Reader in) {
    policy->hub_speaks(host_of(from.from), from.from.generation);
    for (auto o : in.getOutcomes())
      policy->learn(o.getLease(), {o.getPromptTokens(), o.getCachedTokens(), o.getTransferBytes(),
                                   o.getWireUs()});
    for (auto lease : in.getLeases()) policy->release(lease);
    for (auto lease : in.getPrefills()) policy->release_prefill(lease);
    for (auto lease : in.getCleared()) policy->clear(lease);
  }

  /// Kept here and passed on to all hubs: never what this shard itself could not read.
  void report(msg::WorkerReport::Reader in, const msg::envelope<msg::WorkerReport>& e) {
    const std::string worker = in.getWorker().cStr();
    policy->report(worker, in.getGeneration(), read(in), now());
    if (!peers->passes_on(worker)) return;
    for (const auto& hub : peers->hubs()) options.office->send({hub, 0}, me(), e);
  }

  void prefixes(msg::PrefixEvents::Reader in) {
    std::vector<std::uint64_t> added, dropped;
    for (auto h : in.getAdded()) added.push_back(h);
    for (auto h : in.getDropped()) dropped.push_back(h);
    const std::string worker = in.getWorker().cStr();
    if (policy->prefixes(worker, in.getGeneration(), in.getSequence(), in.getReset(), added,
                         dropped, in.getMore()))
      return complete(false);
    ask_for_all(worker, in.getGeneration());
    ask_for_all(false);
  }

  control::shard_load account() const {
    control::shard_load l;
    l.shard = options.name;
    l.generation = options.generation;
    load->tell(l, now());
    l.requests = requests;
    l.misrouted = misrouted;
    l.blocks = policy->index().blocks();
    l.sessions = static_cast<std::uint32_t>(policy->sessions().size());
    l.leases = static_cast<std::uint32_t>(policy->open_leases());
    return l;
  }
};

caf::behavior behavior(caf::stateful_actor<router_state>* self, router_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  if (s.options.metrics) s.metrics.emplace(s.options.metrics, s.options.name);
  const auto first = s.options.first_lease == 0 ? random_lease() : s.options.first_lease;
  s.random.seed(first);  // each incarnation's is another, and a simulation's is its seed's
  s.policy = std::make_unique<router_policy>(s.options.limits, s.options.places, s.options.models,
                                             first);
  for (const auto& [pool, costs] : s.options.costs) s.policy->set_costs(pool, costs);
  std::vector<std::string> hosts;
  for (const auto& [host, place] : s.options.places) hosts.push_back(host);
  s.peers = std::make_unique<shard_peers>(s.options.name, std::move(hosts));
  s.load = std::make_unique<load_book>(s.options.assigned
                                           ? s.options.assigned
                                           : std::make_shared<const control::assignment>(
                                                 control::assignment::uniform({s.options.name})));
  s.options.office->bind(s.options.name, s.options.generation, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  self->send(s.options.directory, directory::subscribe{caf::actor_cast<caf::actor>(self)});
  s.announce(msg::EntryState::STARTING);
  self->delayed_send(self, complete_within, complete_atom::value);
  self->delayed_send(self, account_interval, account_atom::value);
  return {
      [self](const directory::directory_changed& x) { self->state.changed(x); },
      [self](complete_atom) { self->state.complete(true); },
      [self](again_atom) {
        self->state.asks_again = false;
        self->state.ask_for_all(true);
      },
      [self](account_atom) { self->state.tell_account(); },
      [self](const drain_shard&) { self->state.drain(); },
      link::on<msg::ShardState>([&s](msg::ShardState::Reader in) { s.taken_over(in); }),
      link::on<msg::Assignment>([&s](msg::Assignment::Reader in) { s.assign(in); }),
      link::on<msg::RouteRequest>(
          [&s](const link::origin& from, msg::RouteRequest::Reader in) { s.route(from, in); }),
      link::on<msg::RouteRelease>(
          [&s](const link::origin& from, msg::RouteRelease::Reader in) { s.released(from, in); }),
      link::on<msg::WorkerReport>(
          [&s](const link::origin&, msg::WorkerReport::Reader in,
               const msg::envelope<msg::WorkerReport>& e) { s.report(in, e); }),
      link::on<msg::PrefixEvents>([&s](msg::PrefixEvents::Reader in) { s.prefixes(in); }),
      [&s](const describe_leases&) { return leases_report{s.policy->leases()}; },
      [&s](const control::describe_load&) { return s.account(); },
      supervision::answers_for_itself(
          self,
          [&s] {
            supervision::actor_facts all{{"leases", std::to_string(s.policy->open_leases())},
                                         {"state", msg::state_name(s.state)},
                                         {"misrouted", std::to_string(s.misrouted)}};
            for (const auto& m : s.options.models)
              all.emplace_back("cached of what is promised, " + m,
                               fmt::format("{:.2f}", s.policy->cached_share(m)));
            return all;
          }),
  };
}

}  // namespace

caf::actor spawn_router(caf::actor_system& system, router_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::router
