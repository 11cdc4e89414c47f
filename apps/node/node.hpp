#pragma once

#include <string>

namespace troupe::apps {

struct node_options {
  std::string config_file;
  std::string host;
  std::string log_level = "info";
};

/// Runs a node until SIGTERM or SIGINT. A first one drains: /readyz says no, nothing new is taken,
/// streams end by themselves within `limits.drain_timeout`, engines stop. A second one ends at
/// once. Returns the exit code; engines never outlive this.
int run_node(const node_options& options);

}  // namespace troupe::apps
