#pragma once

#include <CLI/CLI.hpp>

namespace troupe::apps {

/// `troupe engine`: one engine, as a node starts it. Not for people: without its node it ends.
void add_engine_command(CLI::App& app, int& exit_code);

}  // namespace troupe::apps
