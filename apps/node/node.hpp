#pragma once

#include <string>

namespace troupe::apps {

struct node_options {
  std::string config_file;
  std::string host;
  std::string log_level = "info";
};

/// Runs a node until SIGTERM or SIGINT. A first one drains: /readyz says no for
/// `limits.drain_notice`, while all is served as before; then nothing new is taken, streams end by
/// themselves within `limits.drain_timeout`, engines stop, and what they still compute for other
/// hosts moves there. Each further signal ends what is being waited for. Returns the exit code;
/// engines never outlive this.
int run_node(const node_options& options);

}  // namespace troupe::apps
