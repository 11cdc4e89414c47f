#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::router {

/// The shard of the `n`-th [[router]] of the cluster file, from 0 on: its directory name.
inline std::string shard_name(std::size_t n) { return "router/" + std::to_string(n); }

/// Of all shards of a cluster, in order.
inline std::vector<std::string> shard_names(std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t n = 0; n < count; ++n) all.push_back(shard_name(n));
  return all;
}

}  // namespace troupe::router
