#pragma once

#include "actors/directory/directory_state.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::router {

/// What a shard knows of those around it, by the directory. Pure.
class shard_peers {
 public:
  /// `hosts`: of the cluster.
  shard_peers(std::string self, std::vector<std::string> hosts)
      : self_(std::move(self)), hosts_(std::move(hosts)) {}

  void update(const directory::snapshot& all);

  /// Hubs hear each worker's reports from one shard only. Two that know different shards may both,
  /// or neither of them, pass a report on: the next one is a second away.
  bool passes_on(std::string_view worker) const;
  /// Shards that decide, this one included.
  std::uint32_t deciding() const { return deciding_; }
  /// Something of every host of the cluster is there.
  bool sees_all_hosts() const { return sees_all_hosts_; }
  const std::vector<std::string>& hubs() const { return hubs_; }
  const std::vector<std::string>& control_hosts() const { return control_hosts_; }

 private:
  std::string self_;
  std::vector<std::string> hosts_;
  std::vector<std::string> tellers_;  ///< shards that pass reports on
  std::vector<std::string> hubs_;
  std::vector<std::string> control_hosts_;  ///< their actors' names
  std::uint32_t deciding_ = 1;
  bool sees_all_hosts_ = false;
};

}  // namespace troupe::router
