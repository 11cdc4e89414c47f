#pragma once

#include "apps/bench/tls.hpp"
#include "messages/base/expected.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

/// Where requests go, and what goes with each.
struct http_target {
  std::string host;
  std::string port;
  std::string base_path;  ///< before `/v1/...`; empty or beginning with a slash
  std::vector<std::pair<std::string, std::string>> headers;
  bool https = false;
  std::shared_ptr<tls_context> tls = nullptr;  ///< where it is https

  /// For the Host header.
  std::string authority() const;
  /// For people: `https://host:port/base`.
  std::string url() const;
};

/// `http://host[:port][/path]`, or https, whose `tls` is the caller's to set; a trailing `/v1` may
/// stand there, as OpenAI clients want it. Errors: `url_invalid`.
expected<http_target> parse_url(const std::string& url);

struct http_answer {
  unsigned status = 0;
  std::string body;
};

/// One GET on a connection of its own. Blocks. Errors: `connect_failed`, `tls_failed`,
/// `timeout`, `broken_answer`.
expected<http_answer> get(const http_target& target, const std::string& path,
                          std::chrono::milliseconds timeout);

/// Polls `/readyz` until it says 200. Blocks. Errors: `not_ready`, with what was said last.
expected<void> await_ready(const http_target& target, std::chrono::milliseconds timeout);

/// The first model that `/v1/models` lists. Errors: those of `get`, `no_model`.
expected<std::string> first_model(const http_target& target);

}  // namespace troupe::bench
