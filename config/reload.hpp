#pragma once

#include "config/cluster.hpp"

#include <string>
#include <vector>

namespace troupe::config {

/// What a running node takes over from a newer cluster file: tenants, `operator_keys` and the
/// generation. These are the sections that differ in anything else, which takes a restart; sorted.
/// Pure.
std::vector<std::string> sections_for_restart(const cluster& running, const cluster& next);

}  // namespace troupe::config
