#pragma once

#include "config/cluster.hpp"

#include <cstdint>
#include <string>

namespace troupe::apps {

/// Open files that a node of this host may need: its gateway's connections, and all else.
std::uint64_t descriptors_needed(const config::cluster& c, const std::string& host);

/// Raises this process's own limit of open files to `needed` as far as the system lets it; many
/// systems begin with 1,024. Returns what the limit is then.
std::uint64_t allow_descriptors(std::uint64_t needed);

}  // namespace troupe::apps
