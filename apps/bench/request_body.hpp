#pragma once

#include "apps/bench/plan.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

enum class endpoint : std::uint8_t { chat, completions };

struct body_options {
  endpoint kind = endpoint::chat;
  std::string model;
  bool stream = true;
  bool usage = true;  ///< asks a stream for its usage
  bool ignore_eos = false;
  std::optional<double> temperature;
  /// Members of a JSON object, as written, that are added to each body.
  std::vector<std::pair<std::string, std::string>> extra;
};

/// `/v1/chat/completions` or `/v1/completions`.
std::string path_of(endpoint kind);

/// The body of one request, JSON.
std::string make_body(const body_options& options, const planned_request& request,
                      const std::string& prompt);

/// The members of a JSON object for `body_options::extra`. Errors: `extra_body_invalid`.
expected<std::vector<std::pair<std::string, std::string>>> parse_extra_body(
    const std::string& json);

}  // namespace troupe::bench
