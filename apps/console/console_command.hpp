#pragma once

#include <CLI/CLI.hpp>

namespace troupe::apps {

/// `troupe console`: looks at a running cluster, once or line by line.
void add_console_command(CLI::App& app, int& exit_code);

/// `troupe config reload`, below `config`: what the console's command `reload` does.
void add_reload_command(CLI::App& config, int& exit_code);

}  // namespace troupe::apps
