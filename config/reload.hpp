#pragma once

#include "config/cluster.hpp"
#include "config/problem.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::config {

/// What a running node takes over from a newer cluster file: tenants, `operator_keys` and the
/// generation. These are the sections that differ in anything else, which takes a restart; sorted.
/// Pure.
std::vector<std::string> sections_for_restart(const cluster& running, const cluster& next);

/// A node takes over so many files between two starts: each is an incarnation of its budgets.
inline constexpr std::uint32_t reloads_max = 254;

/// What a node goes by now.
struct in_force {
  const cluster& started;        ///< the file that it was started with
  std::uint64_t generation = 1;  ///< of the newest that it has taken over
  std::string digest;            ///< the same
  bool tenants = false;          ///< the same: whether it has any
  std::uint32_t reloads = 0;     ///< since it was started
};
/// Why it does not take `next` over; none: it can. `asked`: the digest of the file that whoever
/// asks means; empty: whatever is there. Pure.
std::vector<problem> problems_of_reload(const in_force& now, const cluster& next,
                                        const std::string& asked = {});

}  // namespace troupe::config
