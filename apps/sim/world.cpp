#include "apps/sim/world.hpp"

#include "actors/link/post_office.hpp"

#include <signal.h>

#include <stdexcept>
#include <utility>

namespace troupe::sim {

namespace {

/// The clock begins away from zero, which some take for "never".
constexpr std::chrono::hours beginning{1};

}  // namespace

quiet_config::quiet_config() {
  add_message_types<caf::id_block::troupe_messages>();
  add_message_types<caf::id_block::troupe_link>();
  set("scheduler.policy", caf::atom("testing"));
}

world::world(std::uint64_t seed, config::cluster cluster, bool readable)
    : cluster_(std::move(cluster)), log_(readable), random_(seed, 3),
      system_(std::make_unique<caf::actor_system>(config_)) {
  dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler()).advance_time(beginning);
  schedule_ = std::make_unique<schedule>(*system_, seed, log_);
  network_ = std::make_unique<network>(*schedule_, seed, network_terms{});
  kv_ = std::make_unique<kv_network>(*schedule_, *network_);
  for (const auto& h : cluster_.hosts) nodes_[h.name].host = h.name;
}

world::~world() {
  on_node_lost = nullptr;
  on_node_down = nullptr;
  on_engine_started = nullptr;
  on_engine_ended = nullptr;
  for (auto& [host, n] : nodes_)
    if (n.up()) kill_node(host, true);
  network_->end();
  engines_.clear();
  system_->await_actors_before_shutdown(false);
  system_.reset();
}

bool world::run(std::chrono::milliseconds at_most, const std::function<bool()>& over) {
  const auto until = now() + at_most;
  while (!over())
    if (!schedule_->run_one(until)) return over();
  return true;
}

// -- nodes -------------------------------------------------------------------------

std::vector<std::string> world::hosts() const {
  std::vector<std::string> all;
  for (const auto& h : cluster_.hosts) all.push_back(h.name);
  return all;
}

void world::start_node(const std::string& host) {
  auto& n = nodes_.at(host);
  if (n.up()) return;
  ++n.starts;
  n.process = schedule_->add_process("node " + host + "#" + std::to_string(n.starts));
  network_->place(n.process, host);
  const auto p = n.process;
  log_.tell(now(), host, [] { return std::string{"the node starts"}; });
  schedule_->within(p, [&] {
    apps::node_setup setup;
    setup.cluster = cluster_;
    setup.host = host;
    setup.config_file = "cluster.toml";
    setup.program = "troupe";
    setup.started_s = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(now().time_since_epoch()).count());
    setup.control_state = control_state_;
    setup.world.listen =
        [this, p](caf::actor_system& system, std::shared_ptr<const link::link_context> context,
                  const std::string& address, std::uint16_t port, caf::actor& listener) {
          listener = link::spawn_listener(system, std::move(context));
          return network_->listen(p, address, port, listener);
        };
    setup.world.dialler = network_->spawn_dialler(p);
    setup.world.start_engine = [this, host](launcher::child_process::options o) {
      return start_engine(host, std::move(o));
    };
    setup.world.say = [](const std::string&) {};
    setup.world.first_lease = random_.next() | 1U;
    // All in one turn as with a handful of streams, or most as a crowd's, drawn one by one.
    setup.world.burst_actors_max = random_.chance(0.5) ? 64 : random_.index(3);
    n.tree = std::make_unique<apps::node_tree>(*system_, std::move(setup),
                                               [this, host, p](const std::string& why) {
                                                 schedule_->after_this([this, host, p, why] {
                                                   auto& gone = nodes_.at(host);
                                                   if (!gone.up() || gone.process != p) return;
                                                   kill_node(host, false);
                                                   if (on_node_lost) on_node_lost(host, why);
                                                 });
                                               });
    if (auto started = n.tree->start(); !started)
      throw std::logic_error("a node does not start: " + started.error().message);
  });
}

void world::kill_node(const std::string& host, bool lose) {
  auto& n = nodes_.at(host);
  if (!n.up()) return;
  log_.tell(now(), host, [] { return std::string{"the node's process ends"}; });
  // Engines die with their node.
  for (auto& e : engines_)
    if (e->alive() && e->host() == host) end_process(e->process(), lose);
  end_process(n.process, lose);
  n.tree.reset();
  if (on_node_down) on_node_down(n.process);
}

void world::end_process(process_id p, bool lose) {
  network_->died(p, lose);
  kv_->died(p);
  schedule_->kill(p);
}

// -- engines -----------------------------------------------------------------------

expected<std::unique_ptr<launcher::process>> world::start_engine(
    const std::string& host, launcher::child_process::options o) {
  engine_process::surroundings s;
  s.when = schedule_.get();
  s.net = network_.get();
  s.kv = kv_.get();
  s.cluster = &cluster_;
  s.pace = pace_;
  s.random = &random_;
  s.node = nodes_.at(host).process;
  s.ended = [this](engine_process& e, launcher::exit_status how) {
    log_.tell(now(), e.name(), [&] { return "the engine's process ends: " + to_string(how); });
    end_process(e.process(), false);
    if (on_engine_ended) on_engine_ended(e, how);
  };
  engines_.push_back(std::make_unique<engine_process>(std::move(s), std::move(o)));
  auto& made = *engines_.back();
  log_.tell(now(), made.name(), [&] {
    return "an engine is started, generation " + std::to_string(made.generation());
  });
  if (on_engine_started) on_engine_started(made);
  return std::unique_ptr<launcher::process>{std::make_unique<child>(made)};
}

std::vector<engine_process*> world::living_engines() const {
  std::vector<engine_process*> all;
  for (const auto& e : engines_)
    if (e->alive()) all.push_back(e.get());
  return all;
}

engine_process* world::engine(const std::string& name) const {
  for (auto i = engines_.rbegin(); i != engines_.rend(); ++i)
    if ((*i)->name() == name) return (*i)->alive() ? i->get() : nullptr;
  return nullptr;
}

void world::freeze(process_id p) {
  schedule_->freeze(p);
  network_->frozen(p);
}

void world::thaw(process_id p) {
  schedule_->thaw(p);
  network_->thawed(p);
}

}  // namespace troupe::sim
