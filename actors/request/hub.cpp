#include "actors/request/hub.hpp"

#include "actors/admission/budget_wire.hpp"
#include "actors/admission/budgets_actor.hpp"
#include "actors/capacity/output_forecast.hpp"
#include "actors/directory/readiness.hpp"
#include "actors/link/guarded.hpp"
#include "actors/request/burst.hpp"
#include "actors/request/cost_metrics.hpp"
#include "actors/request/deadline_queue.hpp"
#include "actors/request/fingerprint.hpp"
#include "actors/request/poison_policy.hpp"
#include "actors/request/supply_book.hpp"
#include "actors/request/tenant_metrics.hpp"
#include "actors/request/waiting_room.hpp"
#include "actors/router/router_actor.hpp"
#include "actors/supervision/introspection.hpp"
#include "gpu/engine/job_cost_wire.hpp"
#include "messages/base/planted.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <optional>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace troupe::request {

/// From the desk to the hub.
struct open_request {
  std::shared_ptr<submission> what;
  std::shared_ptr<ticket> place;
};

}  // namespace troupe::request

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::open_request)

namespace troupe::request {

namespace {

using renew_atom = caf::atom_constant<caf::atom("hubrenew")>;
using deadlines_atom = caf::atom_constant<caf::atom("hublate")>;
using costs_atom = caf::atom_constant<caf::atom("hubcosts")>;
using tenants_atom = caf::atom_constant<caf::atom("hubtenants")>;
using routes_atom = caf::atom_constant<caf::atom("hubroutes")>;

/// Keys in one RenewLeases; more go into a second message. Far below the cap of a message.
constexpr std::size_t keys_per_renewal_max = 8'192;

/// Words about budgets in one message.
constexpr std::size_t words_per_message_max = 1'024;
/// How often tenants' limits are looked at: while somebody waits, and while nobody does.
constexpr std::chrono::milliseconds busy_look{20};
constexpr std::chrono::milliseconds idle_look{250};
/// Lines about refused requests come no more often.
constexpr std::chrono::milliseconds refused_line_interval{1'000};

/// A request that runs here.
struct running_request {
  caf::actor actor;
  std::string external_id;
  std::string model;
  std::uint64_t prompt_bytes = 0;
  caf::actor_clock::time_point since;
};

struct hub_state {
  using time_point = poison_list::time_point;
  caf::event_based_actor* self;
  hub_options options;
  std::shared_ptr<const request_context> context;
  std::unordered_map<request_id, running_request, id_hash> requests;
  deadline_queue<request_id> deadlines;
  deadline_queue<job_key> routes;  ///< that the router owes
  poison_list poison;
  cost_book costs{std::vector<cost_book::pool>{}};
  std::unique_ptr<cost_metrics> counts;
  capacity::output_forecast forecast;
  /// Requests that are over, until their workers have told what they have cost.
  std::unordered_map<request_id, std::shared_ptr<ended_request>, id_hash> unsettled;
  deadline_queue<request_id> accounts;  ///< for how long they are waited for
  std::map<caf::actor_addr, request_id> ids;
  std::unique_ptr<waiting_room> room;  ///< null: there are no tenants, and none have been
  std::unique_ptr<tenant_metrics> tenant_counts;
  supply_book supply{std::map<std::string, std::uint32_t>{}};
  bool supply_changed = true;
  time_point next_refresh{};         ///< of what engines can take, at the earliest
  std::uint64_t refused_unsaid = 0;  ///< since the last line about refusals
  time_point next_refused_line{};
  time_point next_full_look{};  ///< at tenants' budgets
  static constexpr const char* name = "requests";

  explicit hub_state(caf::event_based_actor* s) : self(s) {}
  ~hub_state() {
    if (!context) return;
    for (const auto& [id, request] : requests)
      caf::anon_send_exit(request.actor, caf::exit_reason::user_shutdown);
    context->office->unbind(context->self.name, context->self.generation);
  }

  /// Routes that were given to an earlier incarnation, and that nobody took, are given back.
  void tell_router_of_start() {
    if (context->self.generation == 0) return;
    msg::draft<msg::RouteRelease> d;
    d->setHost(context->host);
    if (auto e = std::move(d).freeze())
      context->office->send(context->router, context->self, *std::move(e));
  }

  void open(const open_request& x) {
    if (auto why = refused(*x.what)) {
      spdlog::info("event=request_refused request={} model={} code={}", x.what->external_id,
                   x.what->model, why->code);
      return x.what->client->on_failed(*why);
    }
    if (room && !x.what->tenant.empty()) return arrive(x);
    set_out(x);
  }

  // Not called `begin`: CAF would take a state with that for a container.
  void set_out(const open_request& x) {
    auto request = spawn_request(self, context, x.what, x.place);
    wake_for_deadline(
        deadlines.add(x.what->id, self->clock().now() + x.what->timeout - x.what->waited));
    ids.emplace(request.address(), x.what->id);
    requests.emplace(x.what->id,
                     running_request{std::move(request), x.what->external_id, x.what->model,
                                     bytes_of(*x.what), self->clock().now()});
  }

  // -- tenants: limits, and the queue before capacity -------------------------------

  time_point now() const { return time_point{self->clock().now().time_since_epoch()}; }

  void set_tenants(std::vector<troupe::admission::tenant_limits> limits) {
    if (room) {
      room->gate().set_limits(std::move(limits), now());
      refresh_supply();  // also of models that nobody had limits for
      carry_out(room->pump({}, now()));
      return;
    }
    if (limits.empty()) return;
    room = std::make_unique<waiting_room>(std::move(limits), options.host, options.gateways,
                                          context->self.generation * troupe::admission::sets_max,
                                          now());
    tenant_counts = std::make_unique<tenant_metrics>(metrics());
    refresh_supply();
    self->send(self, tenants_atom::value);
  }

  std::shared_ptr<prometheus::Registry> metrics() {
    if (!options.metrics) options.metrics = std::make_shared<prometheus::Registry>();
    return options.metrics;
  }

  void arrive(const open_request& x) {
    refresh_stale_supply();
    const auto& s = *x.what;
    const std::string tenant = s.tenant, model = s.model;
    x.what->arrived = now();
    const waiting_room::terms t{costs.of_model(model), forecast, supply.bytes_per_token(model),
                                context->gate->free_requests(), context->gate->free_bytes()};
    carry_out(room->arrive({x.what, x.place}, t, now()));
    ask_for(tenant, model);
  }

  void carry_out(std::vector<waiting_room::outcome> all) {
    for (auto& o : all) {
      const auto& s = *o.who.what;
      if (o.why) {
        tenant_counts->refused(s.tenant, s.model, o.why->code);
        say_refused(s, *o.why);
        s.client->on_failed(*o.why);
        continue;
      }
      o.who.what->waited = std::chrono::duration_cast<std::chrono::milliseconds>(now() - s.arrived);
      tenant_counts->admitted(s.tenant, s.model, now() - s.arrived);
      set_out({o.who.what, o.who.place});
    }
  }

  /// Each is counted; under overload a line for each would be the most that the node does.
  void say_refused(const submission& s, const failure& why) {
    ++refused_unsaid;
    if (now() < next_refused_line) return;
    next_refused_line = now() + refused_line_interval;
    spdlog::info("event=request_refused request={} tenant={} model={} code={} retry_after_ms={} "
                 "refused_since_last={}",
                 s.external_id, s.tenant, s.model, why.code, why.retry_after.count(),
                 std::exchange(refused_unsaid, 0));
  }

  /// What a request lacks is asked for at once.
  void ask_for(const std::string& tenant, const std::string& model) {
    std::vector<troupe::admission::gate::outgoing> words;
    room->gate().words_of(tenant, model, now(), words);
    send(words);
  }

  void send(const std::vector<troupe::admission::gate::outgoing>& words) {
    std::map<std::string, std::vector<const troupe::admission::gate::outgoing*>> by_owner;
    for (const auto& w : words) by_owner[w.owner].push_back(&w);
    for (const auto& [owner, all] : by_owner)
      for (std::size_t at = 0; at < all.size(); at += words_per_message_max) {
        const auto count = std::min(words_per_message_max, all.size() - at);
        msg::draft<msg::BudgetWords> d{64 + count * 192};
        auto list = d->initWords(static_cast<unsigned>(count));
        for (std::size_t i = 0; i < count; ++i) {
          auto out = list[static_cast<unsigned>(i)];
          out.setBudget(all[at + i]->budget);
          write(out, all[at + i]->word);
        }
        if (auto e = std::move(d).freeze())
          context->office->send({troupe::admission::budgets_name(owner), 0}, context->self,
                                *std::move(e));
      }
  }

  void answered(const link::origin& from, msg::BudgetAnswers::Reader in) {
    if (!room) return;
    // All is read before any is heeded: a grant counts once.
    std::vector<std::pair<std::string, troupe::admission::owner_word>> all;
    for (auto a : in.getAnswers())
      all.emplace_back(a.getBudget().cStr(), troupe::admission::read(a));
    const auto by = troupe::admission::host_of(from.from.name);
    for (const auto& [budget, word] : all) room->gate().answered(budget, by, word, now());
    for (const auto& [budget, word] : all) {
      const auto slash = std::min(budget.find('/'), budget.size() - 1);
      const auto tenant = budget.substr(0, slash), model = budget.substr(slash + 1);
      carry_out(room->pump(model, now()));
      ask_for(tenant, model);
    }
  }

  /// What engines can take may have changed, somebody's time may be over, and owners of budgets are
  /// to hear from us.
  void look() {
    refresh_stale_supply();
    carry_out(room->pump({}, now()));
    if (now() >= next_full_look) {
      send(room->gate().words(now()));
      tenant_counts->show(room->gate().accounts(now()));
      next_full_look = now() + idle_look;
    } else {
      for (const auto& [who, crowd] : room->crowds()) ask_for(who.first, who.second);
    }
    self->delayed_send(self, room->waiting().empty() ? idle_look : busy_look, tenants_atom::value);
  }

  /// It walks the directory: not for each of many reports and requests.
  void refresh_stale_supply() {
    if (supply_changed && now() >= next_refresh) refresh_supply();
  }

  void refresh_supply() {
    supply_changed = false;
    next_refresh = now() + busy_look;
    auto all = supply.supply(*context->view->get(), costs);
    for (const auto& model : options.models) {
      auto& s = all[model];
      s.window.gateways = static_cast<std::uint32_t>(
          std::max<std::size_t>(1, options.gateways.size()));
      room->gate().supply(model, s.window, s.mu_per_second);
    }
  }

  /// A gateway's host can be reached, or not.
  void note_gateway(const directory::entry& e, bool there) {
    if (room && e.role == msg::Role::BUDGETS)
      room->gate().reachable(troupe::admission::host_of(e.name), there, now());
  }

  /// Its client is gone while it waits, or it is told.
  void cancel(const cancel_request& x) {
    if (!room) return tell(x.id, x);
    const auto who = room->leave(x.id, now());
    if (!who) return tell(x.id, x);
    spdlog::info("event=request_cancelled request={} reason=\"{}\"", who->what->external_id,
                 x.reason);
    const auto& s = *who->what;
    tenant_counts->left(s.tenant, s.model);
    timeline t;
    t.id = s.external_id;
    t.tenant = s.tenant;
    t.model = s.model;
    t.status = "cancelled";
    t.waited_ms = t.total_ms = std::chrono::duration<double, std::milli>(now() - s.arrived).count();
    context->timelines->put(t);
    carry_out(room->pump(s.model, now()));
  }

  /// Others can begin in its place.
  void leaves(const ended_request& x) {
    if (!room || x.tenant.empty()) return;
    room->over(x.id, now());
    carry_out(room->pump(x.model, now()));
  }

  /// What is not even tried.
  std::optional<failure> refused(const submission& s) {
    const auto now = this->now();
    if (const auto wait = context->retries->debt(now); wait.count() > 0)
      return failure{503, "failovers_first",
                     "Accepted streams wait for their next attempt; try again later.", "", wait};
    poison.forget_old(now);
    if (poison.empty()) return std::nullopt;
    for (const auto& p : s.prompts)
      if (const auto left = poison.refused_for(fingerprint(*p), now); left.count() > 0)
        return crashes_engines("it did so before, and is refused for another " +
                               std::to_string(left.count() / 1'000) + " s");
    return std::nullopt;
  }

  void convicted(msg::PoisonNotice::Reader in) {
    poison.add(in.getFingerprint(), std::chrono::milliseconds{in.getForMs()},
               time_point{self->clock().now().time_since_epoch()});
  }

  void suspects(msg::CrashSuspects::Reader in) {
    const std::string engine = in.getEngine().cStr(), reason = in.getReason().cStr();
    std::vector<job_key> keys;
    for (auto key : in.getKeys()) keys.push_back(msg::read(key));
    for (const auto& key : keys)
      tell(key.id, crash_suspected{key, in.getSuspects(), engine, reason});
  }

  void closed(const caf::down_msg& down) {
    auto i = ids.find(down.source);
    if (i == ids.end()) return;
    requests.erase(i->second);
    deadlines.remove(i->second);
    ids.erase(i);
  }

  // -- what requests cost -------------------------------------------------------------

  void over(const request_over& x) {
    leaves(*x.what);
    if (x.what->work.owed() == 0) return settle(*x.what);
    tell(x.what->id, all_passed{});
    if (unsettled.size() >= unsettled_max)
      if (const auto oldest = accounts.take_first()) settle_late(*oldest);
    unsettled[x.what->id] = x.what;
    wake_for_costs(accounts.add(x.what->id, self->clock().now() + costs_wait));
  }

  /// Every message that ends a job: its request may be over, and wait for this.
  template <class Schema>
  void told(typename Schema::Reader in) {
    const auto key = msg::read(in.getKey());
    if constexpr (std::is_same_v<Schema, msg::Rejected>)
      told(cost_told{in.getWorker().cStr(), key, {}});
    else if (in.hasCost())
      told(cost_told{in.getWorker().cStr(), key, engine::read(in.getCost())});
  }
  void told(const cost_told& x) {
    const auto i = unsettled.find(x.key.id);
    if (i == unsettled.end()) return;
    i->second->work.told(x.worker, x.key, x.cost);
    if (i->second->work.owed() == 0) settle_late(x.key.id);
  }
  void settle_late(const request_id& id) {
    const auto i = unsettled.find(id);
    if (i == unsettled.end()) return;
    const auto what = std::move(i->second);
    unsettled.erase(i);
    accounts.remove(id);
    settle(*what);
  }
  void settle_unheard() {
    for (const auto& id : accounts.take_late(self->clock().now())) settle_late(id);
    wake_for_costs(accounts.woken(self->clock().now()));
  }
  void wake_for_costs(const std::optional<time_point>& when) {
    if (when) self->delayed_send(self, *when - self->clock().now(), costs_atom::value);
  }

  /// The one place where a request is accounted for, once each, whatever has ended it.
  void settle(const ended_request& x) {
    auto s = std::make_shared<const settlement>(settle_work(x, costs));
    counts->settled(x.model, *s, costs.of_model(x.model).seconds_per_mu());
    if (room && !x.tenant.empty()) {
      room->settled(x.id, s->tenant_mu, now());
      tenant_counts->charged(x.tenant, x.model, s->tenant_mu);
    }
    for (const auto& p : x.prompts)
      for (const auto& a : p.answers)
        if (a.ended) forecast.learn(x.tenant, x.model, a.tokens, a.cut);
    context->timelines->settle(x, std::move(s));
  }

  /// A request that has ended hears nothing any more.
  template <class Message>
  void tell(const request_id& id, Message&& message) {
    if (auto i = requests.find(id); i != requests.end())
      self->send(i->second.actor, std::forward<Message>(message));
  }

  requests_report report() {
    requests_report r;
    r.generation = context->self.generation;
    for (const auto& [id, x] : requests)
      r.requests.push_back(
          {id, x.external_id, x.model,
           std::chrono::duration_cast<std::chrono::milliseconds>(self->clock().now() - x.since),
           x.prompt_bytes});
    if (room) {
      for (const auto& [number, who] : room->waiting())
        r.requests.push_back(
            {who.what->id, who.what->external_id, who.what->model,
             std::chrono::duration_cast<std::chrono::milliseconds>(now() - who.what->arrived),
             bytes_of(*who.what), true});
      r.tenants = room->gate().accounts(now());
    }
    r.jobs = context->jobs->all();
    r.leases = context->leases->all();
    r.tickets = context->gate->open();
    r.held_bytes = context->gate->held_bytes();
    return r;
  }

  void wake_for_deadline(const std::optional<time_point>& when) {
    if (when) self->delayed_send(self, *when - self->clock().now(), deadlines_atom::value);
  }
  void wake_for_route(const std::optional<time_point>& when) {
    if (when) self->delayed_send(self, *when - self->clock().now(), routes_atom::value);
  }
  void end_late() {
    if (planted::is(planted::bug::forget_deadline)) return;
    for (const auto& id : deadlines.take_late(self->clock().now())) tell(id, deadline_passed{});
    wake_for_deadline(deadlines.woken(self->clock().now()));
  }
  void await(const route_awaited& x) {
    wake_for_route(routes.add(x.attempt, self->clock().now() + route_timeout));
  }
  void miss_routes() {
    for (const auto& key : routes.take_late(self->clock().now())) tell(key.id, route_late{key});
    wake_for_route(routes.woken(self->clock().now()));
  }

  /// Hands a message that has a job's key to that job's request.
  template <class Schema>
  auto passed() {
    return link::on<Schema>(
        [this](const link::origin&, typename Schema::Reader in, const msg::envelope<Schema>& e) {
          tell(msg::read(in.getKey()).id, e);
        });
  }
  /// The same of one that ends a job.
  template <class Schema>
  auto passed_end() {
    return link::on<Schema>(
        [this](const link::origin&, typename Schema::Reader in, const msg::envelope<Schema>& e) {
          tell(msg::read(in.getKey()).id, e);
          if (!unsettled.empty()) told<Schema>(in);
        });
  }

  void routed(msg::Route::Reader in, const msg::envelope<msg::Route>& e) {
    routes.remove(msg::read(in.getKey()));
    auto lease = std::make_shared<held_route>(context->office, context->leases, context->self,
                                              context->router, in.getLease(), context->host);
    tell(msg::read(in.getKey()).id, route_given{e, std::move(lease)});
  }

  void refused(msg::RouteRefused::Reader in, const msg::envelope<msg::RouteRefused>& e) {
    const auto key = msg::read(in.getKey());
    routes.remove(key);
    tell(key.id, e);
  }

  void fan_out(msg::TokenBatch::Reader batch, const msg::envelope<msg::TokenBatch>& e) {
    std::uint32_t index = 0;
    std::vector<request_id> first;  ///< those that have their first token
    burst all{self, options.burst_actors_max};
    for (auto stream : batch.getStreams()) {
      if (auto i = requests.find(msg::read(stream.getKey()).id); i != requests.end()) {
        // Its prompt is computed: others' prompts can be.
        if (room && stream.getFirstIndex() == 0 && stream.getIds().size() > 0)
          first.push_back(i->first);
        all.send(i->second.actor, batch_slice{e, index});
      }
      ++index;
    }
    all.run();
    if (first.empty()) return;
    for (const auto& id : first) room->prefilled(id);
    carry_out(room->pump({}, now()));
  }

  void reported(msg::WorkerReport::Reader in, const msg::envelope<msg::WorkerReport>& e) {
    context->board->put(e);
    supply.note(in.getWorker().cStr(),
                {in.getGeneration(), in.getRunning(),
                 in.getQueued() + in.getPreparing() + in.getUnprepared(), in.getBytesPerToken()});
    supply_changed = true;
  }

  void renew() {
    if (planted::is(planted::bug::forget_renewal)) return;
    for (const auto& [worker, keys] : context->jobs->all()) {
      for (std::size_t at = 0; at < keys.size(); at += keys_per_renewal_max) {
        const auto count = std::min(keys_per_renewal_max, keys.size() - at);
        msg::draft<msg::RenewLeases> d{64 + count * 40};
        auto list = d->initKeys(static_cast<unsigned>(count));
        for (std::size_t i = 0; i < count; ++i) write(list[static_cast<unsigned>(i)], keys[at + i]);
        if (auto e = std::move(d).freeze())
          context->office->send({worker.first, worker.second}, context->self, *std::move(e));
      }
    }
    self->delayed_send(self, options.health.lease_renewal, renew_atom::value);
  }

  void changed(const directory::directory_changed& x) {
    costs.update(x.what);
    supply.update(x.what);
    supply_changed = true;
    for (const auto& e : x.what.removed) note_gateway(e, false);
    for (const auto& e : x.what.added_or_changed) note_gateway(e, true);
    if (room) {
      refresh_supply();
      carry_out(room->pump({}, now()));
    }
    for (const auto& e : x.what.removed)
      gone(e.name, 0,
           x.lost_host.empty() ? "it left the directory" : "host " + x.lost_host + " is lost");
    for (const auto& e : x.what.added_or_changed) {
      if (may_work(e.state))
        gone(e.name, e.generation, "it was restarted");
      else
        gone(e.name, 0, e.detail.empty() ? "it stopped" : e.detail);
    }
  }

  /// Only the book knows whom this concerns: no entry of a worker needs to be remembered here.
  void gone(const std::string& worker, std::uint64_t alive, const std::string& reason) {
    if (planted::is(planted::bug::forget_gone)) return;
    std::set<request_id> told;
    for (const auto& key : context->jobs->at(worker, alive))
      if (told.insert(key.id).second) tell(key.id, worker_gone{worker, alive, reason});
  }
};

caf::behavior behavior(caf::stateful_actor<hub_state>* self, hub_options options,
                       std::shared_ptr<const request_context> context) {
  auto& s = self->state;
  s.options = std::move(options);
  s.context = std::move(context);
  s.costs = cost_book{s.options.pools};
  s.counts = std::make_unique<cost_metrics>(s.metrics());
  s.context->office->bind(s.context->self.name, s.context->self.generation,
                          caf::actor_cast<caf::actor>(self));
  s.supply = supply_book{s.options.step_tokens};
  s.set_tenants(s.options.tenants);
  s.tell_router_of_start();
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_down_handler([self](caf::down_msg& down) { self->state.closed(down); });
  self->set_default_handler(caf::drop);
  self->send(s.options.directory, directory::subscribe{caf::actor_cast<caf::actor>(self)});
  self->delayed_send(self, s.options.health.lease_renewal, renew_atom::value);
  return {
      link::on<msg::TokenBatch>(
          [&s](const link::origin&, msg::TokenBatch::Reader in,
               const msg::envelope<msg::TokenBatch>& e) { s.fan_out(in, e); }),
      [self](const open_request& x) { self->state.open(x); },
      [self](const cancel_request& x) { self->state.cancel(x); },
      [self](const set_tenants& x) { self->state.set_tenants(x.limits); },
      link::on<msg::BudgetAnswers>(
          [&s](const link::origin& from, msg::BudgetAnswers::Reader in) { s.answered(from, in); }),
      [self](tenants_atom) { self->state.look(); },
      link::on<msg::Route>([&s](const link::origin&, msg::Route::Reader in,
                                const msg::envelope<msg::Route>& e) { s.routed(in, e); }),
      link::on<msg::RouteRefused>(
          [&s](const link::origin&, msg::RouteRefused::Reader in,
               const msg::envelope<msg::RouteRefused>& e) { s.refused(in, e); }),
      [self](const route_awaited& x) { self->state.await(x); },
      s.passed<msg::Accepted>(),
      s.passed_end<msg::Rejected>(),
      s.passed_end<msg::PrefillDone>(),
      s.passed_end<msg::JobFailed>(),
      s.passed_end<msg::JobDone>(),
      s.passed<msg::MoveNotice>(),
      s.passed<msg::PartCredit>(),
      link::on<msg::WorkerReport>(
          [&s](const link::origin&, msg::WorkerReport::Reader in,
               const msg::envelope<msg::WorkerReport>& e) { s.reported(in, e); }),
      link::on<msg::CrashSuspects>([&s](msg::CrashSuspects::Reader in) { s.suspects(in); }),
      link::on<msg::PoisonNotice>([&s](msg::PoisonNotice::Reader in) { s.convicted(in); }),
      [self](const directory::directory_changed& x) { self->state.changed(x); },
      [self](renew_atom) { self->state.renew(); },
      [self](const describe_requests&) { return self->state.report(); },
      [self](const describe_timeline& x) {
        return self->state.context->timelines->get(x.external_id);
      },
      [self](const describe_workers&) {
        const auto& c = *self->state.context;
        return c.board->to_json(*c.view->get());
      },
      supervision::answers_for_itself(self,
                                      [&s] {
                                        return supervision::actor_facts{
                                            {"requests", std::to_string(s.requests.size())},
                                            {"unsettled", std::to_string(s.unsettled.size())}};
                                      }),
      [self](const request_over& x) { self->state.over(x); },
      [self](const cost_told& x) { self->state.told(x); },
      [self](costs_atom) { self->state.settle_unheard(); },
      [self](deadlines_atom) { self->state.end_late(); },
      [self](routes_atom) { self->state.miss_routes(); },
  };
}

/// The desk: what I/O threads may call.
class hub_desk : public desk {
 public:
  hub_desk(caf::actor hub, std::shared_ptr<admission> gate,
           std::shared_ptr<const request_context> context,
           std::shared_ptr<directory::directory_view> view, std::vector<std::string> models)
      : hub_(std::move(hub)), gate_(std::move(gate)), context_(std::move(context)),
        view_(std::move(view)), models_(std::move(models)) {}

  expected<void> submit(submission s) override {
    auto place = gate_->enter(bytes_of(s));
    if (!place) return std::move(place).error();
    caf::anon_send(hub_, open_request{std::make_shared<submission>(std::move(s)),
                                      std::shared_ptr<ticket>{*std::move(place)}});
    return ok;
  }
  void cancel(request_id id, std::string reason) override {
    caf::anon_send(hub_, cancel_request{id, std::move(reason)});
  }
  std::string timeline_json(const std::string& external_id,
                            const std::optional<std::string>& of) override {
    return context_->timelines->get(external_id, of);
  }
  std::string workers_json() override { return context_->board->to_json(*view_->get()); }

  std::vector<model_state> models() override {
    auto all = view_->get();
    std::vector<model_state> result;
    for (const auto& model : models_) result.push_back(state_of(model, *all));
    return result;
  }

 private:
  static model_state state_of(const std::string& model, const directory::snapshot& all) {
    directory::readiness engines;
    for (const auto& [name, e] : all)
      if (e.model == model) engines.add(e);
    if (engines.ready()) return {model, true, engines.slow(), false};
    return {model, false, engines.reasons(), engines.failed()};
  }

  caf::actor hub_;
  std::shared_ptr<admission> gate_;
  std::shared_ptr<const request_context> context_;
  std::shared_ptr<directory::directory_view> view_;
  std::vector<std::string> models_;
};

}  // namespace

std::string hub_name(const std::string& host) { return "requests/" + host; }

hub make_hub(caf::actor_system& system, hub_options options) {
  hub h;
  h.jobs = std::make_shared<job_book>();
  h.gate = std::make_shared<admission>(options.limits.requests_max,
                                       options.limits.held_prompt_bytes_max);
  auto context = std::make_shared<request_context>();
  context->host = options.host;
  context->self = {hub_name(options.host), options.generation};
  context->router = {router::router_name, 0};
  context->lease = options.health.lease;
  context->office = options.office;
  context->jobs = h.jobs;
  context->leases = std::make_shared<lease_book>();
  context->gate = h.gate;
  context->timelines = std::make_shared<timeline_store>();
  context->board = std::make_shared<worker_board>();
  context->view = options.view;
  auto view = options.view;
  auto models = options.models;
  h.actor = system.spawn(behavior, std::move(options), context);
  h.front = std::make_shared<hub_desk>(h.actor, h.gate, context, std::move(view),
                                       std::move(models));
  return h;
}

}  // namespace troupe::request
