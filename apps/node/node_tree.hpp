#pragma once

#include "actors/console/inspector.hpp"
#include "actors/console/tree_walk.hpp"
#include "actors/control/store.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/launcher/launcher_actor.hpp"
#include "actors/link/door.hpp"
#include "actors/link/link_actor.hpp"
#include "actors/link/post_office.hpp"
#include "actors/supervision/supervisor.hpp"
#include "actors/supervision/watch.hpp"
#include "apps/node/data_plane.hpp"
#include "apps/node/node_credentials.hpp"
#include "config/cluster.hpp"
#include "messages/base/expected.hpp"

#include <caf/actor_system.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::apps {

/// What of a node reaches beyond its own actors. A simulation has a network, processes and a
/// terminal of its own.
struct node_world {
  /// As `link::listen_at`, which it is when null, but for the door.
  std::function<expected<std::uint16_t>(caf::actor_system&,
                                        std::shared_ptr<const link::link_context>,
                                        const std::string&, std::uint16_t, caf::actor&)>
      listen;
  caf::actor dialler;  ///< see `link::link_context::dialler`
  launcher::child_starter start_engine = &launcher::child_process::start;
  std::function<void(const std::string&)> say;  ///< empty: `apps::say`
  std::uint64_t first_lease = 0;                ///< see `router::router_options`
  std::size_t burst_actors_max = request::hub_options{}.burst_actors_max;
};

/// What a node is made from; immutable once the tree stands.
struct node_setup {
  config::cluster cluster;
  std::string host;
  std::string config_file;
  std::string program;          ///< this executable, for engines
  std::uint64_t started_s = 0;  ///< Unix time of the start: the high part of every generation
  node_world world{};
  std::uint16_t protocol_max = link::protocol_version;
  node_credentials credentials{};
  std::map<std::string, capacity::cost_model> costs{};  ///< calibrated, by pool
  /// Set where this is the control host.
  std::shared_ptr<control::store> control_state{};
};

/// A node's actors: what all stand on (post office, directory, listeners), and a supervisor over
/// connectors, data plane and launchers.
///
/// The ground is not restarted, since all others hold handles to it: when it is lost, `on_lost` is
/// called (any thread) and the process is to end. Used from the main thread.
class node_tree {
 public:
  node_tree(caf::actor_system& system, node_setup setup, std::function<void(std::string)> on_lost);
  ~node_tree();
  node_tree(const node_tree&) = delete;
  node_tree& operator=(const node_tree&) = delete;

  /// Listeners, then everything else in order. Errors: as `link::listen_at` and
  /// `data_plane::open_gateway`; the message begins with the place in the cluster file.
  expected<void> start();

  /// `/readyz` of this node says no from now on; everything is served as before. False: there is no
  /// gateway that could say so.
  bool announce_drain() { return data_->announce_drain(); }
  /// Other hosts' router shards are asked from now on.
  void drain_shards() { data_->drain_shards(); }
  /// Requests of this node end by themselves, up to `limits.drain_timeout`; new ones are refused.
  /// `poll` is called now and then: true gives up waiting.
  void drain_requests(const std::function<bool()>& poll);
  /// Engines finish within `drain`, or have their streams moved to other hosts', then end. Returns
  /// when all processes are gone, at the latest after `drain` and the time to kill.
  void stop_engines(std::chrono::milliseconds drain, const std::function<bool()>& poll);
  /// Says goodbye to the peers and ends all actors.
  void stop();

  std::string describe() const;
  /// After `start`.
  data_plane& data() { return *data_; }

  /// The current incarnation of `drain/<host>`: what a console gives its orders to. Any thread.
  caf::actor current_drain();

 private:
  std::uint64_t next_generation() { return (setup_.started_s << 20U) + ++generations_; }
  link::door door_for_nodes();
  link::door door_for_engines();
  expected<std::uint16_t> listen(const std::string& address, std::uint16_t port, link::door at,
                                 caf::actor& listener);
  expected<void> start_links();
  void add_connectors(std::vector<supervision::child_spec>& children);
  void add_watchdog(std::vector<supervision::child_spec>& children);
  void add_drain(std::vector<supervision::child_spec>& children);
  void add_control(std::vector<supervision::child_spec>& children);
  void add_launchers(std::vector<supervision::child_spec>& children);
  void add_inspector(std::vector<supervision::child_spec>& children);
  /// Reads the cluster file again, and with `apply` takes over what needs no restart: all of it, or
  /// nothing. Any thread.
  /// `digest`: of the file that it has to be; empty: whatever is there.
  console::reload_result reload(bool apply, const std::string& digest);
  void add_consoles(std::vector<supervision::child_spec>& children);
  /// What the tree hangs on, for those who look at it. Any thread.
  std::vector<console::tree_root> roots();
  void add_announcer(std::vector<supervision::child_spec>& children);
  void watch_ground();

  caf::actor_system& system_;
  node_setup setup_;
  std::function<void(std::string)> on_lost_;
  std::atomic<std::uint64_t> generations_{0};
  std::atomic<bool> stopping_{false};

  link::process_id process_{};
  std::shared_ptr<link::post_office> office_ = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view_ = std::make_shared<directory::directory_view>();
  std::shared_ptr<const link::link_context> context_;
  caf::actor directory_;
  caf::actor dialler_;                              ///< none where it was given one
  std::vector<supervision::watched_actor> ground_;  ///< ended last, in reverse order
  std::unique_ptr<data_plane> data_;
  std::uint16_t engine_port_ = 0;
  caf::actor root_;

  std::mutex reload_mutex_;
  std::uint64_t generation_ = setup_.cluster.generation;  ///< of the file that this node goes by
  std::string digest_ = setup_.cluster.digest;            ///< the same
  std::uint32_t reloads_ = 0;
  bool tenants_ = !setup_.cluster.tenants.empty();  ///< the same: whether it has any

  std::mutex handles_mutex_;
  caf::actor watchdog_;                          ///< the current incarnation
  caf::actor drain_;                             ///< the current incarnation
  std::map<std::string, caf::actor> launchers_;  ///< the current incarnations, by engine
  std::vector<console::tree_root> shown_;        ///< the root supervisor last
};

}  // namespace troupe::apps
