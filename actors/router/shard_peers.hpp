#pragma once

#include "actors/directory/directory_state.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::router {

/// So many shards pass a worker's report on to the hubs: one that hangs, or that the worker does
/// not reach, keeps nobody in the dark. Hubs know what they have heard already.
inline constexpr std::size_t report_tellers = 2;

/// What a shard knows of those around it, by the directory. Pure.
class shard_peers {
 public:
  /// `hosts`: of the cluster.
  shard_peers(std::string self, std::vector<std::string> hosts)
      : self_(std::move(self)), hosts_(std::move(hosts)) {}

  void update(const directory::snapshot& all);

  /// Hubs hear each worker's reports from `report_tellers` shards, or from all where there are
  /// fewer. Those that know different shards may pass on more or less: the next report is a second
  /// away.
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
