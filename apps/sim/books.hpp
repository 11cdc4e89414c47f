#pragma once

#include "apps/sim/checkers.hpp"
#include "apps/sim/world.hpp"

#include <string>
#include <vector>

namespace troupe::sim {

/// Engines that do not serve, as each node sees it, and nodes that are down; engines that were
/// given up are not meant.
std::vector<std::string> not_ready(world& w);

/// Into the record, in place of what was there: what routers' shards, hubs, workers and transports
/// hold, and by which assignments all go. Runs what is needed for answers, and lets no time pass.
void read_books(world& w, run_record& into);

}  // namespace troupe::sim
