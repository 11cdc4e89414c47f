#include "apps/engine_command.hpp"

#include "apps/engine/engine_process.hpp"

#include <memory>

namespace troupe::apps {

void add_engine_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("engine", "Run one engine; a node starts these by itself");
  command->group("Started by others");
  auto options = std::make_shared<engine_process_options>();
  command->add_option("--config", options->config_file, "Cluster file")->required();
  command->add_option("--name", options->name, "Directory name: role/pool/host.index")->required();
  command->add_option("--generation", options->generation, "Of this start")->required();
  command
      ->add_option("--node-port", options->node_port,
                   "Where the node listens for its engines, on loopback")
      ->required();
  command
      ->add_option("--secret-fd", options->secret_fd,
                   "Descriptor from which the node's secret is read")
      ->required();
  command->add_option("--board-fd", options->board_fd,
                      "Descriptor of the memory where the engine says what it works at");
  command->add_option("--log-level", options->log_level, "What is logged: from here up")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  command->callback([options, &exit_code] { exit_code = run_engine(*options); });
}

}  // namespace troupe::apps
