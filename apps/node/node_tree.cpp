#include "apps/node/node_tree.hpp"

#include "actors/admission/gate.hpp"
#include "actors/console/inspector.hpp"
#include "actors/console/listener.hpp"
#include "actors/control/control_actor.hpp"
#include "actors/drain/drain_actor.hpp"
#include "actors/health/watchdog_actor.hpp"
#include "actors/link/secret_session.hpp"
#include "actors/link/sockets.hpp"
#include "actors/router/shard_name.hpp"

#include "apps/node/console.hpp"
#include "config/check.hpp"
#include "config/parse.hpp"
#include "config/problem.hpp"
#include "config/reload.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace troupe::apps {

namespace {

/// Of the secret by which an engine proves that this node started it.
constexpr std::size_t secret_bytes = 32;
/// From SIGTERM to SIGKILL of an engine.
constexpr std::chrono::milliseconds engine_stop_ms{5'000};
/// What a launcher is given on top, to see its child's end.
constexpr std::chrono::milliseconds launcher_slack_ms{2'000};
constexpr std::chrono::milliseconds poll_interval_ms{50};

std::vector<std::uint8_t> random_secret() {
  std::vector<std::uint8_t> secret(secret_bytes);
  if (RAND_bytes(secret.data(), static_cast<int>(secret.size())) != 1)
    throw std::runtime_error("no random bytes from the operating system");
  return secret;
}

supervision::restart_limits limits_of(const config::health& h) {
  return {h.restart_intensity, h.restart_period, h.restart_backoff_min, h.restart_backoff_max};
}

/// Tells the person at the terminal how the engines of this host are doing.
caf::behavior announcer(caf::stateful_actor<std::map<std::string, msg::EntryState>>* self,
                        const std::string& host,
                        const std::function<void(const std::string&)>& say) {
  self->set_default_handler(caf::drop);
  return {
      [self, host, say](const directory::directory_changed& x) {
        for (const auto& e : x.what.added_or_changed) {
          if (e.host != host || e.model.empty()) continue;
          auto& known = self->state[e.name];
          if (std::exchange(known, e.state) == e.state) continue;
          if (e.state == msg::EntryState::READY)
            say(fmt::format("engine {} is ready: model {}, {} tokens of context, {} slots", e.name,
                            e.model, e.context_tokens, e.slots));
          else if (e.state == msg::EntryState::LOADING)
            say(fmt::format("engine {} is loading {}", e.name, e.model));
          else if (e.state == msg::EntryState::FAILED)
            say(fmt::format("engine {} has failed: {}", e.name, e.detail));
        }
      },
      supervision::answers_for_itself(self),
  };
}

}  // namespace

node_tree::node_tree(caf::actor_system& system, node_setup setup,
                     std::function<void(std::string)> on_lost)
    : system_(system), setup_(std::move(setup)), on_lost_(std::move(on_lost)),
      process_(link::random_process_id()) {
  if (!setup_.world.say) setup_.world.say = &say;
}

node_tree::~node_tree() { stop(); }

link::door node_tree::door_for_nodes() {
  link::door out;
  if (!setup_.credentials.links) return out;
  auto o = std::make_shared<link::tls_options>();
  o->credentials = setup_.credentials.links;
  for (const auto& h : setup_.cluster.hosts) o->hosts[{h.address, h.port}] = h.name;
  o->on_refused = [owner = directory_](const std::string& host, const error& why) {
    caf::anon_send(owner, link::link_refused{host, why, false});
  };
  out.peers = o->peers;
  out.by = link::tls_guard(std::move(o));
  return out;
}

link::door node_tree::door_for_engines() {
  link::door out;
  out.lets_in = msg::ProcessKind::ENGINE;
  auto o = std::make_shared<link::secret_options>();
  o->secret = context_->self.secret;
  o->on_refused = [owner = directory_](const error& why) {
    caf::anon_send(owner, link::link_refused{"", why, false});
  };
  out.by = link::secret_guard(std::move(o));
  return out;
}

expected<std::uint16_t> node_tree::listen(const std::string& address, std::uint16_t port,
                                          link::door at, caf::actor& listener) {
  if (setup_.world.listen) return setup_.world.listen(system_, context_, address, port, listener);
  return link::listen_at(system_, context_, address, port, std::move(at), listener);
}

expected<void> node_tree::start_links() {
  const auto& c = setup_.cluster;
  link::link_context context;
  context.self.cluster_id = c.section.id;
  context.self.process = process_;
  context.self.kind = msg::ProcessKind::NODE;
  context.self.host = setup_.host;
  context.self.config->set({c.generation, c.section_digests});
  context.self.secret = random_secret();
  context.self.protocol_max = setup_.protocol_max;
  for (const auto& h : c.hosts) context.known_hosts.push_back(h.name);
  context.office = office_;
  context.timing.ping = c.health.heartbeat_interval;
  context.timing.silence_max = c.health.heartbeat_timeout;
  context.owner = directory_;
  context.dialler = setup_.world.dialler;
  const auto nodes = door_for_nodes();
  if (!context.dialler) context.dialler = dialler_ = link::spawn_dialler(system_, nodes.by);
  context_ = std::make_shared<const link::link_context>(std::move(context));

  const auto* self = c.find_host(setup_.host);
  caf::actor for_peers, for_engines;
  auto bound = listen(self->address, self->port, nodes, for_peers);
  if (!bound)
    return error{bound.error().code, to_string(self->where) + ": " + bound.error().message};
  ground_.push_back({"the listener for nodes", for_peers});
  // Engines come over loopback, whatever the host's own address is, and begin with this start's
  // secret.
  bound = listen("127.0.0.1", 0, door_for_engines(), for_engines);
  if (!bound) return std::move(bound).error();
  ground_.push_back({"the listener for engines", for_engines});
  engine_port_ = *bound;
  return ok;
}

void node_tree::add_connectors(std::vector<supervision::child_spec>& children) {
  for (const auto& peer : setup_.cluster.hosts) {
    // One link for each pair: the host whose name sorts first connects.
    if (peer.name <= setup_.host) continue;
    children.push_back(
        {"connector/" + peer.name, [this, peer](std::uint64_t) -> expected<caf::actor> {
           return link::spawn_connector(system_, context_, peer.name, peer.address, peer.port);
         }});
  }
}

void node_tree::add_watchdog(std::vector<supervision::child_spec>& children) {
  health::watchdog_options o;
  o.host = setup_.host;
  o.limits.tick_gap_max = o.limits.pause_max = setup_.cluster.health.hang_timeout;
  o.limits.account_gap_max = o.probes.account_gap_max = 2 * setup_.cluster.health.report_interval;
  const auto& h = setup_.cluster.health;
  o.limits.silence_max = std::max(
      {2 * h.hang_timeout, 5 * h.report_interval, h.heartbeat_timeout + 4 * h.heartbeat_interval});
  // After a process has stood still an account may span what its threads could not use.
  o.tokenisers = health::tokeniser_limits_of(h.hang_timeout, 2 * h.report_interval);
  o.transport.account_gap_max = 2 * h.report_interval;
  o.transport.still_max = std::max(h.hang_timeout, 3 * h.report_interval);
  o.probes.after = setup_.cluster.health.probe_after;
  o.probes.timeout = setup_.cluster.health.probe_timeout;
  o.office = office_;
  children.push_back(
      {health::watchdog_name(setup_.host), [this, o](std::uint64_t) -> expected<caf::actor> {
         auto started = health::spawn_watchdog(system_, o);
         std::lock_guard lock{handles_mutex_};
         watchdog_ = started;
         return started;
       }});
}

void node_tree::add_drain(std::vector<supervision::child_spec>& children) {
  children.push_back(
      {drain::drain_name(setup_.host), [this](std::uint64_t generation) -> expected<caf::actor> {
         drain::drain_options o;
         o.host = setup_.host;
         o.first_run = generation << 12U;
         o.restart_max = setup_.cluster.health.load_timeout + engine_stop_ms + launcher_slack_ms;
         o.office = office_;
         o.directory = directory_;
         auto started = drain::spawn_drain(system_, std::move(o));
         std::lock_guard lock{handles_mutex_};
         drain_ = started;
         return started;
       }});
}

caf::actor node_tree::current_drain() {
  std::lock_guard lock{handles_mutex_};
  return drain_;
}

static_assert(config::routers_max == control::shards_max);

void node_tree::add_control(std::vector<supervision::child_spec>& children) {
  const auto& c = setup_.cluster;
  if (!c.control || c.control->host != setup_.host) return;
  control::control_limits limits;
  limits.interval = c.control->interval;
  limits.assigner.tolerance = c.control->tolerance;
  limits.assigner.churn_max = c.control->churn_max;
  children.push_back({control::control_name, [this, limits](std::uint64_t) -> expected<caf::actor> {
                        control::control_options o;
                        o.generation = next_generation();
                        o.shards = router::shard_names(setup_.cluster.routers.size());
                        o.limits = limits;
                        o.state = setup_.control_state;
                        o.office = office_;
                        o.directory = directory_;
                        o.metrics = data_->metrics();
                        const auto generation = o.generation;
                        auto started = control::spawn_control(system_, std::move(o));
                        directory::announce_ready(directory_, control::control_name,
                                                  msg::Role::CONTROL, generation);
                        return started;
                      }});
}

void node_tree::add_launchers(std::vector<supervision::child_spec>& children) {
  for (const auto& engine : config::engines_on(setup_.cluster, setup_.host)) {
    const auto* pool = setup_.cluster.find_pool(engine.pool);
    launcher::launcher_options o;
    o.engine = engine;
    o.role = pool->role;
    o.model = pool->model;
    o.program = setup_.program;
    o.limits = {config::cpus_of(*pool, engine.index), pool->memory_limit, pool->core_limit};
    o.config_file = setup_.config_file;
    o.node_port = engine_port_;
    o.secret = context_->self.secret;
    o.next_generation = [this] { return next_generation(); };
    o.restarts = limits_of(setup_.cluster.health);
    o.load_timeout = setup_.cluster.health.load_timeout;
    for (const auto& other : config::engines_on(setup_.cluster, setup_.host))
      if (other.name != engine.name) o.neighbours.push_back(other.name);
    o.watchdog = [this] {
      std::lock_guard lock{handles_mutex_};
      return watchdog_;
    };
    o.office = office_;
    o.directory = directory_;
    o.view = view_;
    o.start = setup_.world.start_engine;
    children.push_back({launcher::launcher_name(engine),
                        [this, o](std::uint64_t) mutable -> expected<caf::actor> {
                          o.seed = next_generation();
                          auto started = launcher::spawn_launcher(system_, o);
                          std::lock_guard lock{handles_mutex_};
                          launchers_[o.engine.name] = started;
                          return started;
                        },
                        // A launcher that was told to stop has ended well.
                        supervision::restart_kind::transient, engine_stop_ms + launcher_slack_ms});
  }
}

void node_tree::add_announcer(std::vector<supervision::child_spec>& children) {
  children.push_back({"announcer",
                      [this](std::uint64_t) -> expected<caf::actor> {
                        auto started = system_.spawn(announcer, setup_.host, setup_.world.say);
                        caf::anon_send(directory_, directory::subscribe{started});
                        return started;
                      },
                      // It only prints: its end is no reason to end anything else.
                      supervision::restart_kind::temporary});
}

std::vector<console::tree_root> node_tree::roots() {
  std::lock_guard lock{handles_mutex_};
  return shown_;
}

void node_tree::add_inspector(std::vector<supervision::child_spec>& children) {
  children.push_back(
      {console::inspector_name(setup_.host), [this](std::uint64_t) -> expected<caf::actor> {
         console::inspector_options o;
         o.host = setup_.host;
         o.generation = next_generation();
         o.office = office_;
         o.view = view_;
         o.roots = [this] { return roots(); };
         o.assigned = [this] { return data_->shards()->get(); };
         o.reload = [this](bool apply, const std::string& digest) { return reload(apply, digest); };
         const auto generation = o.generation;
         auto started = console::spawn_inspector(system_, std::move(o));
         directory::announce_ready(directory_, console::inspector_name(setup_.host),
                                   msg::Role::CONSOLE, generation);
         return started;
       }});
}

// Nobody begins a second incarnation of budgets under one number.
static_assert(config::reloads_max < troupe::admission::sets_max - 1);

console::reload_result node_tree::reload(bool apply, const std::string& digest) {
  const std::lock_guard lock{reload_mutex_};
  console::reload_result r;
  auto loaded = config::load(setup_.config_file);
  for (const auto& p : loaded.problems) r.problems.push_back(to_string(p));
  if (loaded) {
    const auto& next = *loaded.value;
    r.file_digest = next.digest;
    const config::in_force now{setup_.cluster, generation_, digest_, tenants_, reloads_};
    for (const auto& p : config::problems_of_reload(now, next, digest))
      r.problems.push_back(fmt::format("{} (host {})", to_string(p), setup_.host));
    if (apply && r.problems.empty()) {
      data_->take_over(next);
      context_->self.config->set({next.generation, next.section_digests});
      generation_ = next.generation;
      digest_ = next.digest;
      tenants_ = !next.tenants.empty();
      ++reloads_;
      r.applied = true;
      for (const auto& w : config::warnings(next))
        spdlog::warn("event=config_warning host={} {}", setup_.host, to_string(w));
    }
  }
  r.generation = generation_;
  r.digest = digest_;
  if (apply)
    spdlog::info("event=config_reloaded host={} applied={} generation={} digest={} problems={}",
                 setup_.host, r.applied, r.generation, r.digest, r.problems.size());
  return r;
}

void node_tree::add_consoles(std::vector<supervision::child_spec>& children) {
  const auto& self = *setup_.cluster.find_host(setup_.host);
  if (self.admin_port == 0) return;
  // As the gateway: a port that is taken away costs nobody else anything.
  auto limits = limits_of(setup_.cluster.health);
  limits.intensity = std::numeric_limits<std::uint32_t>::max();
  auto start = [this, self, limits](std::uint64_t generation) -> expected<caf::actor> {
    supervision::supervisor_options o;
    o.name = "consoles/" + setup_.host;
    o.limits = limits;
    o.first_generation = o.seed = generation;
    o.children.push_back(
        {"listener for consoles", [this, self](std::uint64_t) -> expected<caf::actor> {
           console::listener_options l;
           l.host = setup_.host;
           l.address = self.admin_address;
           l.port = self.admin_port;
           for (const auto& h : setup_.cluster.hosts) l.hosts.push_back(h.name);
           l.office = office_;
           l.directory = directory_;
           l.view = view_;
           l.next_generation = [this] { return next_generation(); };
           l.drain = [this] { return current_drain(); };
           l.credentials = setup_.credentials.consoles;
           auto started = console::spawn_listener(system_, std::move(l));
           if (!started) return std::move(started).error();
           return started->actor;
         }});
    return supervision::spawn_supervisor(system_, std::move(o));
  };
  children.push_back({"supervisor of consoles/" + setup_.host, std::move(start)});
}

void node_tree::watch_ground() {
  auto all = ground_;
  {
    std::lock_guard lock{handles_mutex_};
    for (const auto& x : ground_) shown_.push_back({x.name, x.actor});
    shown_.push_back({"node/" + setup_.host, root_});
  }
  all.push_back({"the root supervisor", root_});
  if (dialler_) all.push_back({"the dialler", dialler_});
  ground_.push_back(
      {"watch", supervision::spawn_watch(system_, std::move(all), [this](const std::string& why) {
         if (!stopping_) on_lost_(why);
       })});
}

expected<void> node_tree::start() {
  directory_ = directory::spawn_directory(system_, setup_.host, process_, office_, view_);
  ground_.push_back({directory::directory_name(setup_.host), directory_});
  if (auto listening = start_links(); !listening) return listening;
  data_ = std::make_unique<data_plane>(
      system_, setup_.cluster,
      data_plane_ground{setup_.host, office_, view_, directory_,
                        [this] { return next_generation(); }, setup_.world.first_lease,
                        setup_.world.burst_actors_max, setup_.credentials.gateway, setup_.costs});
  if (auto listening = data_->open_gateway(); !listening) return listening;
  supervision::supervisor_options o;
  o.name = "node/" + setup_.host;
  o.limits = limits_of(setup_.cluster.health);
  o.first_generation = next_generation();
  o.seed = o.first_generation;
  add_announcer(o.children);
  add_connectors(o.children);
  data_->add_children(o.children);
  add_control(o.children);
  add_watchdog(o.children);
  add_inspector(o.children);
  add_consoles(o.children);
  add_launchers(o.children);
  add_drain(o.children);
  data_->add_gateway(o.children);
  root_ = supervision::spawn_supervisor(system_, std::move(o));
  watch_ground();
  data_->announce();
  return ok;
}

std::string node_tree::describe() const {
  const auto& c = setup_.cluster;
  const auto* self = c.find_host(setup_.host);
  auto text = fmt::format("host {} of cluster {}: links on {}:{}{}", setup_.host, c.section.id,
                          self->address, self->port, setup_.credentials.links ? ", by TLS" : "");
  const auto engines = config::engines_on(c, setup_.host);
  for (const auto& g : c.gateways)
    if (g.host == setup_.host)
      text += fmt::format("\n  gateway for OpenAI clients on {}://{}:{}/v1",
                          g.certificate.empty() ? "http" : "https", g.address, g.port);
  for (const auto& r : c.routers)
    if (r.host == setup_.host) text += "\n  router";
  if (c.control && c.control->host == setup_.host)
    text += "\n  control of the router shards, by " + c.control->state;
  for (const auto& e : engines) text += fmt::format("\n  engine {} of pool {}", e.name, e.pool);
  return text;
}

void node_tree::drain_requests(const std::function<bool()>& poll) { data_->drain(poll); }

void node_tree::stop_engines(std::chrono::milliseconds drain, const std::function<bool()>& poll) {
  stopping_ = true;
  std::map<std::string, caf::actor> left;
  {
    std::lock_guard lock{handles_mutex_};
    left = launchers_;
  }
  caf::scoped_actor me{system_};
  auto order = [&](std::chrono::milliseconds d) {
    for (const auto& [engine, l] : left)
      me->send(l, launcher::stop_engine{d, engine_stop_ms, caf::actor_cast<caf::actor>(me)});
  };
  for (const auto& [engine, l] : left) me->monitor(l);
  order(drain);
  using clock = std::chrono::steady_clock;
  const auto until = clock::now() + drain + engine_stop_ms + launcher_slack_ms;
  bool hurried = false;
  while (!left.empty() && clock::now() < until) {
    me->receive([&](const launcher::engine_stopped& x) { left.erase(x.engine); },
                [&](const caf::down_msg& d) {
                  std::erase_if(left,
                                [&](const auto& x) { return x.second.address() == d.source; });
                },
                caf::after(poll_interval_ms) >> [] {});
    if (!hurried && poll()) {
      hurried = true;
      order(std::chrono::milliseconds{0});
    }
  }
}

void node_tree::stop() {
  stopping_ = true;
  if (root_) {
    caf::scoped_actor me{system_};
    // The gateway ends open answers, launchers their engines, connectors their links.
    me->monitor(root_);
    me->send_exit(root_, caf::exit_reason::user_shutdown);
    me->receive([](const caf::down_msg&) {},
                caf::after(engine_stop_ms + launcher_slack_ms) >> [] {});
    root_ = nullptr;
  }
  for (auto i = ground_.rbegin(); i != ground_.rend(); ++i)
    caf::anon_send_exit(i->actor, caf::exit_reason::user_shutdown);
  ground_.clear();
  directory_ = nullptr;
  if (dialler_) link::end_dialler(dialler_);
  dialler_ = nullptr;
}

}  // namespace troupe::apps
