#pragma once

#include <CLI/CLI.hpp>

namespace troupe::apps {

/// Adds `troupe node --config FILE --host NAME`. `exit_code` is set when the node has ended (see
/// messages/base/exit_codes.hpp).
void add_node_command(CLI::App& app, int& exit_code);

}  // namespace troupe::apps
