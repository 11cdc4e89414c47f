#include "apps/node/data_plane.hpp"

#include "actors/admission/budgets_actor.hpp"
#include "actors/admission/tenants.hpp"
#include "actors/drain/drain_actor.hpp"
#include "actors/gateway/gateway_actor.hpp"
#include "actors/launcher/launcher_actor.hpp"
#include "actors/router/router_actor.hpp"
#include "config/problem.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::apps {

namespace {

/// How often a drain looks whether it is over or no longer waited for.
constexpr std::chrono::milliseconds drain_poll_ms{20};
/// What the gateway is given on top of its own drain timeout to end the last answers.
constexpr std::chrono::milliseconds drain_slack_ms{1'000};
/// For the gateway to end its answers when it is told to stop.
constexpr std::chrono::milliseconds gateway_stop_ms{5'000};
/// In `health.restart_period`: no limit. A port that another process has taken may come free at any
/// time, and meanwhile this host serves the other gateways; the back-off bounds what trying costs.
constexpr std::uint32_t gateway_restarts_max = std::numeric_limits<std::uint32_t>::max();

std::vector<std::string> model_names(const config::cluster& c) {
  std::vector<std::string> names;
  for (const auto& m : c.models) names.push_back(m.name);
  return names;
}

}  // namespace

void lasting_desk::set(std::shared_ptr<request::desk> next) {
  std::lock_guard lock{mutex_};
  current_ = std::move(next);
}

std::shared_ptr<request::desk> lasting_desk::get() const {
  std::lock_guard lock{mutex_};
  return current_;
}

expected<void> lasting_desk::submit(request::submission s) {
  if (auto d = get()) return d->submit(std::move(s));
  return error{"shutting_down", "this node is not serving yet, or no longer"};
}

void lasting_desk::cancel(request::request_id id, std::string reason) {
  if (auto d = get()) d->cancel(id, std::move(reason));
}

std::string lasting_desk::timeline_json(const std::string& external_id,
                                        const std::optional<std::string>& of) {
  auto d = get();
  return d ? d->timeline_json(external_id, of) : std::string{};
}

std::string lasting_desk::workers_json() {
  auto d = get();
  return d ? d->workers_json() : desk::workers_json();
}

std::vector<request::desk::model_state> lasting_desk::models() {
  auto d = get();
  return d ? d->models() : std::vector<model_state>{};
}

data_plane::data_plane(caf::actor_system& system, const config::cluster& cluster,
                       data_plane_ground ground)
    : system_(system), cluster_(cluster), ground_(std::move(ground)),
      shards_(std::make_shared<control::shard_map>(
          router::shard_names(std::max<std::size_t>(1, cluster.routers.size())))) {
  keys_->set(admission::keys_of(cluster_));
  limits_ = admission::limits_of(cluster_);
}

data_plane::~data_plane() {
  if (opened_) caf::anon_send_exit(opened_, caf::exit_reason::user_shutdown);
}

const config::gateway* data_plane::gateway_here() const {
  for (const auto& g : cluster_.gateways)
    if (g.host == ground_.host) return &g;
  return nullptr;
}

std::vector<std::string> data_plane::gateway_hosts() const {
  std::vector<std::string> hosts;
  for (const auto& g : cluster_.gateways) hosts.push_back(g.host);
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

std::optional<capacity::cost_model> data_plane::costs_of(const std::string& pool) const {
  const auto i = ground_.costs.find(pool);
  return i == ground_.costs.end() ? std::nullopt : std::optional{i->second};
}

void data_plane::add_children(std::vector<supervision::child_spec>& children) {
  for (std::size_t n = 0; n < cluster_.routers.size(); ++n)
    if (cluster_.routers[n].host == ground_.host)
      children.push_back({router::shard_name(n), [this, n](std::uint64_t generation) {
                            return start_shard(n, generation);
                          }});
  if (gateway_here())
    children.push_back({admission::budgets_name(ground_.host),
                        [this](std::uint64_t generation) -> expected<caf::actor> {
                          admission::budgets_options o;
                          o.host = ground_.host;
                          o.generation = generation;
                          o.gateways = gateway_hosts();
                          o.office = ground_.office;
                          const std::lock_guard lock{tenants_mutex_};
                          o.limits = limits_;
                          return budgets_ = admission::spawn_budgets(system_, std::move(o));
                        }});
  children.push_back(
      {request::hub_name(ground_.host), [this](std::uint64_t generation) -> expected<caf::actor> {
         request::hub_options o;
         o.host = ground_.host;
         o.generation = generation;
         o.limits = cluster_.limits;
         o.health = cluster_.health;
         o.models = model_names(cluster_);
         o.office = ground_.office;
         o.view = ground_.view;
         o.directory = ground_.directory;
         o.burst_actors_max = ground_.burst_actors_max;
         for (const auto& p : cluster_.pools)
           o.pools.push_back({p.name, p.model, costs_of(p.name)});
         o.metrics = metrics_;
         o.gateways = gateway_hosts();
         for (const auto& p : cluster_.pools) o.step_tokens[p.name] = p.step_tokens;
         o.shards = shards_;
         const std::lock_guard tenants{tenants_mutex_};
         // Requests come in at gateways only.
         if (gateway_here()) o.tenants = limits_;
         auto hub = request::make_hub(system_, std::move(o));
         desk_->set(hub.front);
         std::lock_guard lock{hub_mutex_};
         hub_ = hub;
         return hub.actor;
       }});
}

expected<caf::actor> data_plane::start_shard(std::size_t n, std::uint64_t generation) {
  router::router_options o;
  o.host = ground_.host;
  o.name = router::shard_name(n);
  o.generation = generation;
  o.limits.decode_prefills_tokens_max = cluster_.routers[n].decode_prefills_tokens_max;
  for (const auto& h : cluster_.hosts) o.places[h.name] = h.place;
  o.models = model_names(cluster_);
  o.office = ground_.office;
  o.directory = ground_.directory;
  // Each incarnation's numbers are its own.
  if (ground_.first_lease != 0)
    o.first_lease = (ground_.first_lease ^ generation * 0x9E37'79B9'7F4A'7C15ULL) | 1U;
  o.costs = ground_.costs;
  o.assigned = shards_->get();
  o.node = shards_;
  o.metrics = metrics_;
  auto shard = router::spawn_router(system_, std::move(o));
  const std::lock_guard lock{running_mutex_};
  running_shards_[n] = shard;
  if (draining_) caf::anon_send(shard, router::drain_shard{});
  return shard;
}

void data_plane::drain_shards() {
  const std::lock_guard lock{running_mutex_};
  draining_ = true;
  for (const auto& [n, shard] : running_shards_) caf::anon_send(shard, router::drain_shard{});
}

void data_plane::take_over(const config::cluster& next) {
  const std::lock_guard lock{tenants_mutex_};
  limits_ = admission::limits_of(next);
  if (!gateway_here()) return;
  // The hub first: whoever comes in by a new key finds its limits there.
  if (const auto hub = current_hub(); hub.actor)
    caf::anon_send(hub.actor, request::set_tenants{limits_});
  if (budgets_) caf::anon_send(budgets_, admission::set_budgets{limits_});
  keys_->set(admission::keys_of(next));
}

void data_plane::set_entry(std::string name, msg::Role role, std::uint64_t generation) {
  directory::announce_ready(ground_.directory, std::move(name), role, generation);
}

void data_plane::announce() {
  const auto generation = ground_.next_generation();
  set_entry(request::hub_name(ground_.host), msg::Role::REQUESTS, generation);
  if (gateway_here())
    set_entry(admission::budgets_name(ground_.host), msg::Role::BUDGETS, generation);
  set_entry(drain::drain_name(ground_.host), msg::Role::DRAIN, generation);
  for (const auto& e : config::engines_on(cluster_, ground_.host))
    set_entry(launcher::launcher_name(e), msg::Role::LAUNCHER, generation);
}

expected<caf::actor> data_plane::listen() {
  const auto& here = *gateway_here();
  gateway::gateway_options o;
  o.address = here.address;
  o.port = here.port;
  o.server_names = here.server_names;
  o.limits = cluster_.limits;
  o.chain_key = admission::cluster_chain_key(cluster_.section.id);
  o.keys = keys_;
  o.models = model_names(cluster_);
  o.metrics = metrics_;
  o.credentials = ground_.gateway_credentials;
  return gateway::spawn_gateway(system_, std::move(o), desk_);
}

expected<void> data_plane::open_gateway() {
  const auto* here = gateway_here();
  if (!here) return ok;
  auto opened = listen();
  if (!opened)
    return error{opened.error().code, to_string(here->where) + ": gateway of host " + ground_.host +
                                          ": " + opened.error().message};
  opened_ = *std::move(opened);
  return ok;
}

expected<caf::actor> data_plane::start_gateway() {
  std::lock_guard lock{gateway_mutex_};
  auto started = opened_ ? expected<caf::actor>{std::exchange(opened_, nullptr)} : listen();
  if (!started) return started;
  gateway_ = *started;
  const auto generation = ground_.next_generation();
  set_entry(gateway_name(), msg::Role::GATEWAY, generation);
  gateway_->attach_functor(
      [directory = ground_.directory, name = gateway_name(), generation](const caf::error&) {
        caf::anon_send(directory, directory::remove_entry{name, generation});
      });
  return started;
}

void data_plane::add_gateway(std::vector<supervision::child_spec>& children) {
  if (!gateway_here()) return;
  auto start = [this](std::uint64_t generation) -> expected<caf::actor> {
    supervision::supervisor_options o;
    o.name = gateway_name();
    o.limits = {gateway_restarts_max, cluster_.health.restart_period,
                cluster_.health.restart_backoff_min, cluster_.health.restart_backoff_max};
    o.first_generation = o.seed = generation;
    o.children.push_back({gateway_name(), [this](std::uint64_t) { return start_gateway(); },
                          // One that was told to stop has ended well.
                          supervision::restart_kind::transient, gateway_stop_ms});
    return supervision::spawn_supervisor(system_, std::move(o));
  };
  children.push_back({"supervisor of " + gateway_name(), std::move(start),
                      supervision::restart_kind::permanent, gateway_stop_ms + drain_slack_ms});
}

request::hub data_plane::current_hub() {
  std::lock_guard lock{hub_mutex_};
  return hub_;
}

caf::actor data_plane::current_gateway() {
  std::lock_guard lock{gateway_mutex_};
  return gateway_;
}

bool data_plane::announce_drain() {
  const auto current = current_gateway();
  if (current) caf::anon_send(current, gateway::announce_drain{});
  return current != nullptr;
}

void data_plane::drain(const std::function<bool()>& poll) {
  const auto current = current_gateway();
  if (!current) return;
  caf::scoped_actor me{system_};
  me->monitor(current);
  me->send(current, gateway::drain_gateway{caf::actor_cast<caf::actor>(me)});
  using clock = std::chrono::steady_clock;
  const auto until = clock::now() + cluster_.limits.drain_timeout + drain_slack_ms;
  bool done = false;
  while (!done && clock::now() < until && !poll())
    me->receive([&](const gateway::gateway_drained&) { done = true; },
                [&](const caf::down_msg&) { done = true; }, caf::after(drain_poll_ms) >> [] {});
  // Clients hear of the end from the gateway, not from engines that vanish.
  if (!done) me->send_exit(current, caf::exit_reason::user_shutdown);
}

}  // namespace troupe::apps
