#include "actors/router/router_actor.hpp"

#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"
#include "messages/job_key.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <random>

namespace troupe::router {

namespace {

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
  return {r.getRunning(),         r.getQueued(),
          r.getQueuedTokens(),    r.getKvUsedTokens(),
          r.getKvCachedTokens(),  r.getKvTotalTokens(),
          r.getPrefilledTokens(), r.getSampledTokens(),
          r.getBytesPerToken(),   r.getIdle(),
          r.getBusyUs(),          r.getPreparing() + r.getUnprepared()};
}

std::uint64_t random_lease() {
  std::random_device draw;
  return std::uint64_t{draw()} << 32U | draw();
}

/// Of `requests/<host>`.
std::string host_of(const msg::address& hub) {
  const auto slash = hub.name.find('/');
  return slash == std::string::npos ? hub.name : hub.name.substr(slash + 1);
}

struct router_state {
  caf::event_based_actor* self;
  router_options options;
  std::unique_ptr<router_policy> policy;
  std::vector<std::string> hubs;
  std::mt19937_64 random;
  static constexpr const char* name = "router";

  explicit router_state(caf::event_based_actor* s) : self(s) {}
  ~router_state() {
    if (options.office) options.office->unbind(router_name, 0);
  }

  time_point now() const { return time_point{self->clock().now().time_since_epoch()}; }

  void route(const link::origin& from, msg::RouteRequest::Reader in) {
    auto q = read(in);
    q.host = host_of(from.from);
    q.incarnation = from.from.generation;
    q.now = now();
    q.draw = random();
    // All is read before a lease is granted: one that nobody is told of would never come back.
    const msg::address to{in.getReplyTo().cStr(), 0};
    const auto key = msg::read(in.getKey());
    auto answer = policy->decide(q);
    if (auto* c = std::get_if<route_choice>(&answer)) {
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
      options.office->send(to, {router_name, 0}, *std::move(e));
    else
      spdlog::error("event=answer_too_large to={} reason=\"{}\"", to.name, e.error().message);
  }

  /// Who gets workers' reports passed on.
  void find_hubs(const directory::snapshot& all) {
    hubs.clear();
    for (const auto& [entry_name, e] : all)
      if (e.role == msg::Role::REQUESTS) hubs.push_back(entry_name);
  }

  void released(const link::origin& from, msg::RouteRelease::Reader in) {
    policy->hub_speaks(host_of(from.from), from.from.generation);
    for (auto lease : in.getLeases()) policy->release(lease);
    for (auto lease : in.getPrefills()) policy->release_prefill(lease);
    for (auto lease : in.getCleared()) policy->clear(lease);
  }

  /// Kept here and passed on to all hubs: never what this shard itself could not read.
  void report(msg::WorkerReport::Reader in, const msg::envelope<msg::WorkerReport>& e) {
    policy->report(in.getWorker().cStr(), in.getGeneration(), read(in), now());
    for (const auto& hub : hubs) options.office->send({hub, 0}, {router_name, 0}, e);
  }

  void prefixes(const link::origin& from, msg::PrefixEvents::Reader in) {
    std::vector<std::uint64_t> added, dropped;
    for (auto h : in.getAdded()) added.push_back(h);
    for (auto h : in.getDropped()) dropped.push_back(h);
    if (policy->prefixes(in.getWorker().cStr(), in.getGeneration(), in.getSequence(), in.getReset(),
                         added, dropped))
      return;
    msg::draft<msg::PrefixResync> d;
    d->setWorker(in.getWorker());
    d->setGeneration(in.getGeneration());
    reply(from.from, std::move(d).freeze());
  }
};

caf::behavior behavior(caf::stateful_actor<router_state>* self, router_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  const auto first = s.options.first_lease == 0 ? random_lease() : s.options.first_lease;
  s.random.seed(first);  // each incarnation's is another, and a simulation's is its seed's
  s.policy = std::make_unique<router_policy>(s.options.limits, s.options.places, s.options.models,
                                             first);
  for (const auto& [pool, costs] : s.options.costs) s.policy->set_costs(pool, costs);
  s.options.office->bind(router_name, 0, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  self->send(s.options.directory, directory::subscribe{caf::actor_cast<caf::actor>(self)});
  return {
      [self](const directory::directory_changed& x) {
        self->state.policy->update(x.what);
        self->state.find_hubs(*x.all);
        if (!x.lost_host.empty()) self->state.policy->lose_host(x.lost_host);
      },
      link::on<msg::RouteRequest>(
          [&s](const link::origin& from, msg::RouteRequest::Reader in) { s.route(from, in); }),
      link::on<msg::RouteRelease>(
          [&s](const link::origin& from, msg::RouteRelease::Reader in) { s.released(from, in); }),
      link::on<msg::WorkerReport>(
          [&s](const link::origin&, msg::WorkerReport::Reader in,
               const msg::envelope<msg::WorkerReport>& e) { s.report(in, e); }),
      link::on<msg::PrefixEvents>(
          [&s](const link::origin& from, msg::PrefixEvents::Reader in) { s.prefixes(from, in); }),
      [&s](const describe_leases&) { return leases_report{s.policy->leases()}; },
      supervision::answers_for_itself(
          self,
          [&s] {
            return supervision::actor_facts{{"leases", std::to_string(s.policy->open_leases())}};
          }),
  };
}

}  // namespace

caf::actor spawn_router(caf::actor_system& system, router_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::router
