#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::router {

/// The shard of the `n`-th [[router]] of the cluster file, from 0 on: its directory name.
inline std::string shard_name(std::size_t n) { return "router/" + std::to_string(n); }

/// Whether this is how the first `count` shards of a cluster are called.
inline bool is_shard_name(std::string_view name, std::size_t count) {
  const auto slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  std::size_t n = 0;
  const auto digits = name.substr(slash + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n < count && name == shard_name(n);
}

/// Of all shards of a cluster, in order.
inline std::vector<std::string> shard_names(std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t n = 0; n < count; ++n) all.push_back(shard_name(n));
  return all;
}

}  // namespace troupe::router
