#pragma once

#include "actors/gateway/openai/api_error.hpp"

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include <optional>
#include <string>
#include <vector>

namespace troupe::gateway::http {

/// Whom a listener takes itself for. A page from anywhere can have its own name resolve to
/// 127.0.0.1 (DNS rebinding): its browser then sends it here, and lets it read the answers. What
/// gives that away is the name in the `Host` header. Addresses and localhost cannot be had by such
/// a page, so that they are always right.
struct known_names {
  bool any = false;
  std::vector<std::string> names;  ///< in lower case; `*.example.com`: all below that

  /// Of a listener at `address`, with `gateway.server_names`. Where those are not set, a plain
  /// listener on loopback knows no names. Any other one does not care: only clients know what it is
  /// called, and by TLS a browser looks for the page's name in the certificate.
  static known_names of(const std::string& address, bool encrypted,
                        const std::vector<std::string>& server_names);
};

/// None: the request may go on. Errors: `host_header_invalid` (400), since without exactly one of
/// its form a request by HTTP/1.1 is none; `host_not_known` (421).
std::optional<openai::api_error> check_host(
    const boost::beast::http::header<true, boost::beast::http::fields>& head,
    const known_names& known);

}  // namespace troupe::gateway::http
