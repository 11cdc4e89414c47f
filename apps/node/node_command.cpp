#include "apps/node/node_command.hpp"

#include "apps/node/node.hpp"

#include <memory>

namespace troupe::apps {

void add_node_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("node", "Run this host's part of a cluster, until SIGTERM");
  auto options = std::make_shared<node_options>();
  command->add_option("--config", options->config_file, "Cluster file")->required();
  command->add_option("--host", options->host, "Name of this host in the cluster file")->required();
  command->add_option("--log-level", options->log_level, "What is logged: from here up")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  command->callback([options, &exit_code] { exit_code = run_node(*options); });
}

}  // namespace troupe::apps
