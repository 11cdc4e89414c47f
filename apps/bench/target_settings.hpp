#pragma once

#include "apps/bench/http_target.hpp"
#include "messages/base/expected.hpp"

#include <string>
#include <vector>

namespace troupe::bench {

/// The options that say where requests go.
struct target_settings {
  std::vector<std::string> urls;
  std::string kind = "chat";  ///< or `completions`
  std::string model;          ///< empty: the first that the server lists
  std::string api_key;
  std::vector<std::string> headers;  ///< `Name: value`
  bool insecure = false;
  std::string ca_file;  ///< empty: the system's CAs
  double wait_ready_s = 0;
};

/// One target for each URL, once it is ready where that is waited for. Errors: `usage` for settings
/// that make no sense, and those of `await_ready`.
expected<std::vector<http_target>> targets_of(const target_settings& s);

}  // namespace troupe::bench
