#pragma once

#include <CLI/CLI.hpp>

namespace troupe::apps {

/// Adds `troupe sim chaos`. `exit_code` is set when it has run: 1 when a run found something.
void add_sim_command(CLI::App& app, int& exit_code);

}  // namespace troupe::apps
