#include "actors/request/hub.hpp"

#include "actors/directory/readiness.hpp"
#include "actors/link/guarded.hpp"
#include "actors/request/burst.hpp"
#include "actors/request/deadline_queue.hpp"
#include "actors/request/fingerprint.hpp"
#include "actors/request/hub_accounts.hpp"
#include "actors/request/hub_tenants.hpp"
#include "actors/request/joint_wake.hpp"
#include "actors/request/owed_routes.hpp"
#include "actors/request/poison_policy.hpp"
#include "actors/router/shard_name.hpp"
#include "actors/supervision/introspection.hpp"
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
using routes_atom = caf::atom_constant<caf::atom("hubroutes")>;

/// Keys in one RenewLeases; more go into a second message. Far below the cap of a message.
constexpr std::size_t keys_per_renewal_max = 8'192;

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
  owed_routes routes;
  std::map<std::string, std::uint64_t> shards;  ///< incarnations of those in the directory
  poison_list poison;
  std::unique_ptr<hub_accounts> accounts;
  std::unique_ptr<hub_tenants> tenants;
  std::map<caf::actor_addr, request_id> ids;
  static constexpr const char* name = "requests";

  explicit hub_state(caf::event_based_actor* s) : self(s) {}
  ~hub_state() {
    if (!context) return;
    for (const auto& [id, request] : requests)
      caf::anon_send_exit(request.actor, caf::exit_reason::user_shutdown);
    context->office->unbind(context->self.name, context->self.generation);
  }

  /// Routes that were given to an earlier incarnation, and that nobody took, are given back.
  void tell_of_start(const std::string& shard) {
    if (context->self.generation == 0) return;
    msg::draft<msg::RouteRelease> d;
    d->setHost(context->host);
    if (auto e = std::move(d).freeze())
      context->office->send({shard, 0}, context->self, *std::move(e));
  }
  void tell_all_of_start() {
    const auto all = options.shards->get();
    for (const auto& shard : all->shards()) tell_of_start(shard);
  }

  /// What a shard owes that is gone, or has begun anew, does not come. One that comes (again) may
  /// never have heard of this hub's start; one that this hub, new itself, only now hears of owes
  /// what it was asked.
  void shard_changed(const directory::entry& e, bool there) {
    if (e.role != msg::Role::ROUTER) return;
    if (there) {
      const auto [known, first] = shards.try_emplace(e.name, e.generation);
      if (!first && known->second == e.generation) return;
      known->second = e.generation;
      context->silent->heard(e.name, now());
      tell_of_start(e.name);
      if (first) return;
    } else {
      shards.erase(e.name);
    }
    for (const auto& owed : routes.take_of(e.name, there ? e.generation : 0))
      tell(owed.attempt.id, route_late{owed.attempt});
  }
  /// It was there when it was asked, and by now is not, or is another.
  bool is_gone(const std::string& shard, std::uint64_t generation) const {
    if (generation == 0) return false;
    const auto all = context->view->get();
    const auto e = all->find(shard);
    return e == all->end() || e->second.generation != generation;
  }

  void assigned(msg::Assignment::Reader in) {
    auto a = control::read(in);
    if (!a) {
      spdlog::warn("event=assignment_refused code={} reason=\"{}\"", a.error().code,
                   a.error().message);
      return;
    }
    const auto number = a->number();
    if (options.shards->offer(*std::move(a)))
      spdlog::info("event=assignment_taken term={} generation={}", number.term, number.generation);
  }

  void open(const open_request& x) {
    if (auto why = refused(*x.what)) {
      spdlog::info("event=request_refused request={} model={} code={}", x.what->external_id,
                   x.what->model, why->code);
      return x.what->client->on_failed(*why);
    }
    const waiting_room::guest who{x.what, x.place};
    if (!tenants->arrive(who)) set_out(who);
  }

  // Not called `begin`: CAF would take a state with that for a container.
  void set_out(const waiting_room::guest& x) {
    auto request = spawn_request(self, context, x.what, x.place);
    wake_for_deadline(
        deadlines.add(x.what->id, self->clock().now() + x.what->timeout - x.what->waited));
    ids.emplace(request.address(), x.what->id);
    requests.emplace(x.what->id,
                     running_request{std::move(request), x.what->external_id, x.what->model,
                                     bytes_of(*x.what), self->clock().now()});
  }

  time_point now() const { return time_point{self->clock().now().time_since_epoch()}; }

  /// Its client is gone while it waits, or it is told.
  void cancel(const cancel_request& x) {
    if (!tenants->cancel(x)) tell(x.id, x);
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

  void over(const request_over& x) {
    tenants->over(*x.what);
    if (accounts->over(x.what)) tell(x.what->id, all_passed{});
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
    tenants->report(r);
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
    if (is_gone(x.shard, x.generation)) return tell(x.attempt.id, route_late{x.attempt});
    wake_for_route(
        routes.add(x.attempt, x.shard, x.generation, self->clock().now() + route_timeout));
  }
  void miss_routes() {
    for (const auto& owed : routes.take_late(self->clock().now())) {
      // What was asked of a shard out of sight has hardly reached it.
      if (owed.generation > 0) context->silent->note(owed.shard, owed.due - route_timeout, now());
      tell(owed.attempt.id, route_late{owed.attempt, true});
    }
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
          accounts->told<Schema>(in);
        });
  }

  /// Also an answer that nobody waits for any more has a lease, which goes back to whoever gave it.
  void routed(const link::origin& from, msg::Route::Reader in, const msg::envelope<msg::Route>& e) {
    routes.remove(msg::read(in.getKey()));
    context->silent->heard(from.from.name, now());
    auto lease = std::make_shared<held_route>(context->office, context->leases, context->self,
                                              msg::address{from.from.name, 0}, in.getLease(),
                                              context->host);
    tell(msg::read(in.getKey()).id, route_given{e, std::move(lease)});
  }

  void refused(const link::origin& from, msg::RouteRefused::Reader in,
               const msg::envelope<msg::RouteRefused>& e) {
    const auto key = msg::read(in.getKey());
    routes.remove(key);
    context->silent->heard(from.from.name, now());
    tell(key.id, e);
  }

  void fan_out(msg::TokenBatch::Reader batch, const msg::envelope<msg::TokenBatch>& e) {
    std::uint32_t index = 0;
    std::vector<request_id> first;  ///< those that have their first token
    const joint_wake wakes;
    burst all{self, options.burst_actors_max};
    for (auto stream : batch.getStreams()) {
      if (auto i = requests.find(msg::read(stream.getKey()).id); i != requests.end()) {
        // Its prompt is computed: others' prompts can be.
        if (tenants->any() && stream.getFirstIndex() == 0 && stream.getIds().size() > 0)
          first.push_back(i->first);
        all.send(i->second.actor, batch_slice{e, index});
      }
      ++index;
    }
    all.run();
    tenants->prefilled(first);
  }

  void reported(msg::WorkerReport::Reader in, const msg::envelope<msg::WorkerReport>& e) {
    if (context->board->put(e)) tenants->reported(in);
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
    accounts->costs().update(x.what);
    tenants->changed(x);
    for (const auto& e : x.what.removed) shard_changed(e, false);
    for (const auto& e : x.what.added_or_changed) shard_changed(e, true);
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
  if (!s.options.metrics) s.options.metrics = std::make_shared<prometheus::Registry>();
  s.accounts = std::make_unique<hub_accounts>(self, s.context, s.options.pools, s.options.metrics);
  s.tenants = std::make_unique<hub_tenants>(
      self, s.context,
      hub_tenants::options{s.options.host, s.options.models, s.options.gateways,
                           s.options.step_tokens, s.options.metrics},
      *s.accounts, [&s](const waiting_room::guest& who) { s.set_out(who); });
  s.accounts->on_settled = [&s](const ended_request& x, const settlement& what) {
    s.tenants->settled(x, what);
  };
  s.context->office->bind(s.context->self.name, s.context->self.generation,
                          caf::actor_cast<caf::actor>(self));
  s.tenants->set_limits(s.options.tenants);
  s.tell_all_of_start();
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
      [self](const set_tenants& x) { self->state.tenants->set_limits(x.limits); },
      link::on<msg::BudgetAnswers>([&s](const link::origin& from, msg::BudgetAnswers::Reader in) {
        s.tenants->answered(from, in);
      }),
      [self](tenants_atom) { self->state.tenants->look(); },
      link::on<msg::Route>([&s](const link::origin& from, msg::Route::Reader in,
                                const msg::envelope<msg::Route>& e) { s.routed(from, in, e); }),
      link::on<msg::Assignment>([&s](msg::Assignment::Reader in) { s.assigned(in); }),
      link::on<msg::RouteRefused>(
          [&s](const link::origin& from, msg::RouteRefused::Reader in,
               const msg::envelope<msg::RouteRefused>& e) { s.refused(from, in, e); }),
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
                                            {"unsettled", std::to_string(s.accounts->unsettled())}};
                                      }),
      [self](const request_over& x) { self->state.over(x); },
      [self](const cost_told& x) { self->state.accounts->told(x); },
      [self](costs_atom) { self->state.accounts->settle_unheard(); },
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
    const auto engines = directory::readiness_of(model, all);
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
  if (!options.shards)
    options.shards = std::make_shared<control::shard_map>(router::shard_names(1));
  context->shards = options.shards;
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
