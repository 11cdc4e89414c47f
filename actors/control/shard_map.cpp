#include "actors/control/shard_map.hpp"

#include <algorithm>

namespace troupe::control {

const std::string& choose_shard(const assignment& a, const directory::snapshot& all, key64 key,
                                std::uint64_t draw, std::uint32_t tried) {
  const auto& names = a.shards();
  const auto replicas = a.replicas_of(key);
  const auto known = [&](std::uint16_t i) { return all.contains(names[i]); };
  const auto ready = [&](std::uint16_t i) {
    const auto e = all.find(names[i]);
    return e != all.end() && e->second.state == msg::EntryState::READY;
  };
  // Nearly always the first is there and has not been tried.
  const auto first = replicas[draw % replicas.size()];
  if (tried == 0 && ready(first)) return names[first];
  std::vector<std::uint16_t> order;
  const auto add = [&](std::uint16_t i) {
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  };
  for (std::size_t i = 0; i < replicas.size(); ++i) add(replicas[(draw + i) % replicas.size()]);
  // The rest from a place that the key gives: a lost shard's requests go to all others.
  for (std::size_t i = 0; i < names.size(); ++i)
    add(static_cast<std::uint16_t>((key % names.size() + i) % names.size()));
  if (std::any_of(order.begin(), order.end(), ready))
    std::erase_if(order, [&](std::uint16_t i) { return !ready(i); });
  else if (std::any_of(order.begin(), order.end(), known))
    std::erase_if(order, [&](std::uint16_t i) { return !known(i); });
  return names[order[tried % order.size()]];
}

}  // namespace troupe::control
