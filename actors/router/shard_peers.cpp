#include "actors/router/shard_peers.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace troupe::router {

void shard_peers::update(const directory::snapshot& all) {
  hubs_.clear();
  control_hosts_.clear();
  std::vector<std::string> ready, others;
  std::set<std::string> hosts;
  for (const auto& [name, e] : all) {
    hosts.insert(e.host);
    if (e.role == msg::Role::REQUESTS) hubs_.push_back(name);
    if (e.role == msg::Role::CONTROL) control_hosts_.push_back(name);
    if (e.role == msg::Role::ROUTER)
      (e.state == msg::EntryState::READY ? ready : others).push_back(name);
  }
  sees_all_hosts_ = std::all_of(hosts_.begin(), hosts_.end(),
                                [&](const std::string& h) { return hosts.contains(h); });
  tellers_ = ready.empty() ? std::move(others) : ready;
  const bool counted = std::find(ready.begin(), ready.end(), self_) != ready.end();
  deciding_ = static_cast<std::uint32_t>(ready.size()) + (counted ? 0 : 1);
}

bool shard_peers::passes_on(std::string_view worker) const {
  if (tellers_.empty()) return true;  // the directory has not heard of this one yet
  const auto first = std::hash<std::string_view>{}(worker) % tellers_.size();
  for (std::size_t i = 0; i < std::min(report_tellers, tellers_.size()); ++i)
    if (tellers_[(first + i) % tellers_.size()] == self_) return true;
  return false;
}

}  // namespace troupe::router
