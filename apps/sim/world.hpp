#pragma once

#include "apps/sim/engine_process.hpp"
#include "apps/sim/history.hpp"
#include "apps/sim/kv_lane.hpp"
#include "apps/sim/network.hpp"
#include "apps/sim/schedule.hpp"

#include "actors/control/memory_store.hpp"
#include "apps/node/node_tree.hpp"
#include "config/cluster.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::sim {

/// An actor system without threads, sockets or a wall clock.
class quiet_config : public caf::actor_system_config {
 public:
  quiet_config();
};

/// A cluster in one process: nodes with production's trees, engines as their children, a network
/// and a clock. Nothing of it fails by itself.
class world {
 public:
  world(std::uint64_t seed, config::cluster cluster, bool readable);
  ~world();
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  // -- time ----------------------------------------------------------------------
  schedule& when() { return *schedule_; }
  caf::actor_system& system() { return *system_; }
  time_point now() const { return schedule_->now(); }
  history& log() { return log_; }
  /// Runs until `over` or until so much time has passed; false: the latter.
  bool run(std::chrono::milliseconds at_most, const std::function<bool()>& over);

  // -- nodes -----------------------------------------------------------------------
  struct node {
    std::string host;
    process_id process = no_process;
    std::unique_ptr<apps::node_tree> tree;  ///< empty while it is down
    std::uint64_t starts = 0;
    bool up() const { return tree != nullptr; }
  };
  const std::map<std::string, node>& nodes() const { return nodes_; }
  std::vector<std::string> hosts() const;
  node& node_at(const std::string& host) { return nodes_.at(host); }
  void start_node(const std::string& host);
  /// With its engines, as by SIGKILL. `lose`: see `network::died`. Not from within its actors.
  void kill_node(const std::string& host, bool lose);
  /// Called when a node's process has ended, whoever ended it.
  std::function<void(process_id)> on_node_down;
  /// Called when a node's process has ended by itself.
  std::function<void(const std::string& host, const std::string& why)> on_node_lost;

  // -- engines ---------------------------------------------------------------------
  /// All that were ever started, in order.
  const std::vector<std::unique_ptr<engine_process>>& engines() const { return engines_; }
  std::vector<engine_process*> living_engines() const;
  /// The current incarnation; null: none lives.
  engine_process* engine(const std::string& name) const;
  std::function<void(engine_process&)> on_engine_started;
  std::function<void(engine_process&, launcher::exit_status)> on_engine_ended;

  void freeze(process_id p);
  void thaw(process_id p);
  network& net() { return *network_; }
  kv_network& kv() { return *kv_; }
  /// What the control host's disk has.
  control::record control_record() const { return control_state_->last(); }
  const config::cluster& cluster() const { return cluster_; }
  seeded& random() { return random_; }
  engine_pace& pace() { return pace_; }

 private:
  expected<std::unique_ptr<launcher::process>> start_engine(const std::string& host,
                                                            launcher::child_process::options o);
  void end_process(process_id p, bool lose);

  config::cluster cluster_;
  history log_;
  seeded random_;
  engine_pace pace_;
  // What actors call outlives their system.
  std::unique_ptr<network> network_;
  std::unique_ptr<kv_network> kv_;
  std::unique_ptr<schedule> schedule_;
  quiet_config config_;
  std::unique_ptr<caf::actor_system> system_;
  /// It outlives its node.
  std::shared_ptr<control::store> control_state_ = std::make_shared<control::memory_store>();
  std::map<std::string, node> nodes_;
  std::vector<std::unique_ptr<engine_process>> engines_;
};

}  // namespace troupe::sim
