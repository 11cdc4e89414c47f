#pragma once

#include <CLI/CLI.hpp>

namespace troupe::apps {

/// Adds `troupe bench run`. `exit_code` is set when it has run: 0; 1 when no answer was whole, or
/// with --strict when any was not; 2 for settings that contradict each other.
void add_bench_command(CLI::App& app, int& exit_code);

}  // namespace troupe::apps
