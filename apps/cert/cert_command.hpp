#pragma once

#include <CLI/CLI.hpp>

namespace troupe::apps {

/// `troupe cert`: the cluster's own CA, and what it signs.
void add_cert_command(CLI::App& app, int& exit_code);

}  // namespace troupe::apps
