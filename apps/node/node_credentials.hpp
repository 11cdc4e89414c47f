#pragma once

#include "actors/trust/credentials.hpp"
#include "config/cluster.hpp"
#include "config/problem.hpp"

#include <functional>
#include <memory>

namespace troupe::apps {

/// By what a node proves who it is; null where the cluster file asks for none.
struct node_credentials {
  std::shared_ptr<trust::credentials> consoles;  ///< to consoles, which prove theirs
  std::shared_ptr<trust::credentials> links;     ///< to other hosts, and they to us
  std::shared_ptr<trust::credentials> gateway;   ///< to clients of this host's gateway
};

/// Reads what the cluster file names for this host. Each problem is told, at the place of the file
/// that names it; what is good but soon ends is told by `on_warning`. False: there were problems.
bool load_credentials(const config::cluster& c, const config::host& self, trust::time_point now,
                      const std::function<void(const config::problem&)>& on_problem,
                      const std::function<void(const config::problem&)>& on_warning,
                      node_credentials& out);

}  // namespace troupe::apps
