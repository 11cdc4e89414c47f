#pragma once

#include <CLI/CLI.hpp>

#include <iosfwd>
#include <string>

namespace troupe::apps {

/// Adds `troupe config check|show|reference`. `exit_code` is set when one of them has run: 0, or 1
/// when the file has problems.
void add_config_command(CLI::App& app, int& exit_code);

/// `troupe config check FILE`: every problem on a line of `err`, or a summary on `out`. Returns the
/// exit code.
int check_config(const std::string& file, std::ostream& out, std::ostream& err);

/// `troupe config show FILE`: the effective configuration with the origin of each value. Returns
/// the exit code.
int show_config(const std::string& file, std::ostream& out, std::ostream& err);

}  // namespace troupe::apps
