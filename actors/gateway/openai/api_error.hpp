#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace troupe::gateway::openai {

/// An error in OpenAI's terms. `code` is stable and machine-readable; `param` is the path of the
/// parameter at fault (`messages[1].content[0].type`), or empty. A value type.
struct api_error {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code = {};
  std::string param = {};
  std::string message = {};
  std::chrono::milliseconds retry_after{0};  ///< 0: none

  friend bool operator==(const api_error&, const api_error&) = default;
};

/// OpenAI's `type` for an HTTP status.
inline std::string type_for(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "service_unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

inline api_error make_error(int status, std::string code, std::string message,
                            std::string param = {}) {
  return {status, type_for(status), std::move(code), std::move(param), std::move(message)};
}

}  // namespace troupe::gateway::openai
