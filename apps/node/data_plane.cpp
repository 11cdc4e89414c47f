#include "apps/node/data_plane.hpp"

#include "actors/gateway/gateway_actor.hpp"
#include "actors/request/hub.hpp"
#include "actors/router/router_actor.hpp"

#include <caf/all.hpp>

#include <openssl/sha.h>

#include <cstring>
#include <utility>

namespace troupe::apps {

namespace {

/// How often a drain looks whether it is over or no longer waited for.
constexpr std::chrono::milliseconds drain_poll_ms{20};
/// What the gateway is given on top of its own drain timeout to end the last answers.
constexpr std::chrono::milliseconds drain_slack_ms{1'000};

/// The same at every gateway of a cluster, another in each cluster.
std::uint64_t chain_key(const std::string& cluster_id) {
  const std::string text = "troupe prompt chain of " + cluster_id;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::uint64_t key = 0;
  std::memcpy(&key, digest, sizeof key);
  return key;
}

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

std::string lasting_desk::timeline_json(const std::string& external_id) {
  auto d = get();
  return d ? d->timeline_json(external_id) : std::string{};
}

std::string lasting_desk::workers_json() {
  auto d = get();
  return d ? d->workers_json() : desk::workers_json();
}

std::vector<request::desk::model_state> lasting_desk::models() {
  auto d = get();
  return d ? d->models() : std::vector<model_state>{};
}

data_plane::data_plane(caf::actor_system& system, const config::cluster& cluster, std::string host,
                       std::shared_ptr<link::post_office> office,
                       std::shared_ptr<directory::directory_view> view, caf::actor directory)
    : system_(system), cluster_(cluster), host_(std::move(host)), office_(std::move(office)),
      view_(std::move(view)), directory_(std::move(directory)) {}

bool data_plane::router_here() const {
  return !cluster_.routers.empty() && cluster_.routers.front().host == host_;
}

const config::gateway* data_plane::gateway_here() const {
  for (const auto& g : cluster_.gateways)
    if (g.host == host_) return &g;
  return nullptr;
}

void data_plane::add_children(std::vector<supervision::child_spec>& children) {
  if (router_here()) {
    children.push_back({router::router_name, [this](std::uint64_t) -> expected<caf::actor> {
                          router::router_options o;
                          o.host = host_;
                          o.limits.decode_prefills_tokens_max =
                              cluster_.routers.front().decode_prefills_tokens_max;
                          for (const auto& h : cluster_.hosts) o.places[h.name] = h.place;
                          o.models = model_names(cluster_);
                          o.office = office_;
                          o.directory = directory_;
                          return router::spawn_router(system_, std::move(o));
                        }});
  }
  children.push_back({request::hub_name(host_), [this](std::uint64_t) -> expected<caf::actor> {
                        request::hub_options o;
                        o.host = host_;
                        o.limits = cluster_.limits;
                        o.health = cluster_.health;
                        o.models = model_names(cluster_);
                        o.office = office_;
                        o.view = view_;
                        o.directory = directory_;
                        auto hub = request::make_hub(system_, std::move(o));
                        desk_->set(hub.front);
                        return hub.actor;
                      }});
}

void data_plane::set_entry(std::string name, msg::Role role, std::uint64_t generation) {
  directory::entry e;
  e.name = std::move(name);
  e.generation = generation;
  e.role = role;
  e.state = msg::EntryState::READY;
  caf::anon_send(directory_, directory::set_entry{std::move(e)});
}

void data_plane::announce(std::uint64_t generation) {
  if (router_here()) set_entry(router::router_name, msg::Role::ROUTER, generation);
  set_entry(request::hub_name(host_), msg::Role::REQUESTS, generation);
  if (gateway_here()) set_entry("gateway/" + host_, msg::Role::GATEWAY, generation);
  for (const auto& e : config::engines_on(cluster_, host_))
    set_entry("launcher/" + e.pool + "/" + e.host + "." + std::to_string(e.index),
              msg::Role::LAUNCHER, generation);
}

void data_plane::add_gateway(std::vector<supervision::child_spec>& children) {
  const auto* here = gateway_here();
  if (!here) return;
  gateway::gateway_options o;
  o.address = here->address;
  o.port = here->port;
  o.limits = cluster_.limits;
  o.chain_key = chain_key(cluster_.section.id);
  o.models = model_names(cluster_);
  children.push_back({"gateway/" + host_,
                      [this, o](std::uint64_t) -> expected<caf::actor> {
                        auto started = gateway::spawn_gateway(system_, o, desk_);
                        std::lock_guard lock{gateway_mutex_};
                        if (started) gateway_ = *started;
                        return started;
                      },
                      // One that was told to stop has ended well.
                      supervision::restart_kind::transient});
}

void data_plane::drain(const std::function<bool()>& poll) {
  caf::actor gateway;
  {
    std::lock_guard lock{gateway_mutex_};
    gateway = gateway_;
  }
  if (!gateway) return;
  caf::scoped_actor me{system_};
  me->monitor(gateway);
  me->send(gateway, gateway::drain_gateway{caf::actor_cast<caf::actor>(me)});
  using clock = std::chrono::steady_clock;
  const auto until = clock::now() + cluster_.limits.drain_timeout + drain_slack_ms;
  bool done = false;
  while (!done && clock::now() < until && !poll())
    me->receive([&](const gateway::gateway_drained&) { done = true; },
                [&](const caf::down_msg&) { done = true; }, caf::after(drain_poll_ms) >> [] {});
  // Clients hear of the end from the gateway, not from engines that vanish.
  if (!done) me->send_exit(gateway, caf::exit_reason::user_shutdown);
}

}  // namespace troupe::apps
