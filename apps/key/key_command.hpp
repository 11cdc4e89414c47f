#pragma once

#include <CLI/CLI.hpp>

#include <iosfwd>
#include <string>

namespace troupe::apps {

/// A new API key for a tenant, which is kept nowhere, and the lines for the cluster file. Returns
/// an exit code.
int create_key(const std::string& tenant, std::ostream& out, std::ostream& err);

/// `troupe key`: API keys of tenants.
void add_key_command(CLI::App& app, int& exit_code);

}  // namespace troupe::apps
