#pragma once

#include <cstdint>
#include <string>

namespace troupe::apps {

struct engine_process_options {
  std::string config_file;
  std::string name;  ///< directory name: `decode/llama/h2.0`
  std::uint64_t generation = 0;
  std::uint16_t node_port = 0;
  int secret_fd = -1;
  int board_fd = -1;  ///< where this process says what it works at; -1: nowhere
  std::string log_level = "info";
};

/// Loads an engine, links to the node that started it, and works until a signal, the node's word,
/// or the node's end. Returns an exit code of exit_codes.hpp.
int run_engine(const engine_process_options& options);

}  // namespace troupe::apps
