#pragma once

#include "actors/admission/current_keys.hpp"
#include "actors/admission/gate.hpp"
#include "actors/capacity/cost_model.hpp"
#include "actors/control/shard_map.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/link/post_office.hpp"
#include "actors/request/hub.hpp"
#include "actors/request/submission.hpp"
#include "actors/supervision/supervisor.hpp"
#include "actors/trust/credentials.hpp"
#include "config/cluster.hpp"
#include "messages/base/expected.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <prometheus/registry.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::apps {

/// The desk that the gateway keeps, whatever happens to the request hub behind it. Thread-safe.
class lasting_desk : public request::desk {
 public:
  void set(std::shared_ptr<request::desk> next);
  expected<void> submit(request::submission s) override;
  void cancel(request::request_id id, std::string reason) override;
  std::string timeline_json(const std::string& external_id,
                            const std::optional<std::string>& of) override;
  std::string workers_json() override;
  std::vector<model_state> models() override;

 private:
  std::shared_ptr<request::desk> get() const;
  mutable std::mutex mutex_;
  std::shared_ptr<request::desk> current_;
};

/// What a data plane stands on.
struct data_plane_ground {
  std::string host;
  std::shared_ptr<link::post_office> office;
  std::shared_ptr<directory::directory_view> view;
  caf::actor directory;
  /// Of each actor that is announced: larger than any before. Any thread.
  std::function<std::uint64_t()> next_generation;
  std::uint64_t first_lease = 0;  ///< see `router::router_options`
  std::size_t burst_actors_max = request::hub_options{}.burst_actors_max;
  std::shared_ptr<trust::credentials> gateway_credentials = nullptr;  ///< null: plain HTTP
  std::map<std::string, capacity::cost_model> costs = {};             ///< calibrated, by pool
};

/// What of the data plane runs in a node: the router shards that the cluster file puts here, the
/// request hub, and the gateway of this host, if it has one. Outlives the node's supervisor.
class data_plane {
 public:
  data_plane(caf::actor_system& system, const config::cluster& cluster, data_plane_ground ground);
  ~data_plane();
  data_plane(const data_plane&) = delete;
  data_plane& operator=(const data_plane&) = delete;

  /// The first start of the gateway, if it is here: it listens from now on, and says that nothing
  /// is ready. Errors: as `gateway::http_gateway::start`; the message begins with the place in the
  /// cluster file.
  expected<void> open_gateway();
  /// Router shards and hub, as children of the node's supervisor.
  void add_children(std::vector<supervision::child_spec>& children);
  /// The gateway, if it is here, under a supervisor of its own; last, so that it is stopped before
  /// what its answers need.
  void add_gateway(std::vector<supervision::child_spec>& children);
  /// Tells the directory of the actors here. The gateway is in it while it listens.
  void announce();

  /// Tenants' keys and limits are those of this cluster file from now on. Any thread.
  void take_over(const config::cluster& next);

  /// The current incarnation of the gateway; null before its first start. Any thread.
  caf::actor current_gateway();

  /// Where requests are put in; lasts as long as this, whatever happens to the hub. Any thread.
  std::shared_ptr<request::desk> front() { return desk_; }
  std::shared_ptr<directory::directory_view> view() { return ground_.view; }
  std::shared_ptr<control::shard_map> shards() { return shards_; }
  /// What `/metrics` of this host's gateway shows.
  std::shared_ptr<prometheus::Registry> metrics() { return metrics_; }
  /// The current incarnation of the hub; empty before its first start. For whoever looks into the
  /// books.
  request::hub current_hub();

  /// `/readyz` says no; requests are served as before. False: there is no gateway here.
  bool announce_drain();
  /// Other hosts' shards are asked from now on, if any is ready. Any thread.
  void drain_shards();
  /// `/readyz` says no, nothing new is taken. Returns when no answer is open, when
  /// `limits.drain_timeout` has ended them, or when `poll` says true.
  void drain(const std::function<bool()>& poll);

 private:
  const config::gateway* gateway_here() const;
  expected<caf::actor> start_shard(std::size_t n, std::uint64_t generation);
  std::vector<std::string> gateway_hosts() const;
  std::optional<capacity::cost_model> costs_of(const std::string& pool) const;
  std::string gateway_name() const { return "gateway/" + ground_.host; }
  expected<caf::actor> listen();
  expected<caf::actor> start_gateway();
  void set_entry(std::string name, msg::Role role, std::uint64_t generation);

  caf::actor_system& system_;
  const config::cluster& cluster_;
  data_plane_ground ground_;
  std::shared_ptr<admission::current_keys> keys_ = std::make_shared<admission::current_keys>();
  std::mutex tenants_mutex_;  ///< taken before `hub_mutex_`
  std::vector<admission::tenant_limits> limits_;
  caf::actor budgets_;  ///< the current incarnation
  std::shared_ptr<lasting_desk> desk_ = std::make_shared<lasting_desk>();
  /// Who of the shards has which keys, as this node was last told; the cluster file's until then.
  std::shared_ptr<control::shard_map> shards_;
  std::mutex running_mutex_;
  std::map<std::size_t, caf::actor> running_shards_;  ///< current incarnations
  bool draining_ = false;                             ///< those that begin are told, too
  /// Hub and gateway count here, whichever incarnation.
  std::shared_ptr<prometheus::Registry> metrics_ = std::make_shared<prometheus::Registry>();
  std::mutex hub_mutex_;
  request::hub hub_;  ///< the current incarnation
  std::mutex gateway_mutex_;
  caf::actor opened_;   ///< the first incarnation, until its supervisor has taken it
  caf::actor gateway_;  ///< the current incarnation
};

}  // namespace troupe::apps
