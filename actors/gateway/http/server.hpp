#pragma once

#include "actors/gateway/http/responder.hpp"
#include "actors/trust/credentials.hpp"
#include "config/cluster.hpp"
#include "messages/base/expected.hpp"

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::gateway::http {

using request = boost::beast::http::request<boost::beast::http::string_body>;

/// Answers a request through the responder, at once or later. Called on the I/O thread; must not
/// block.
using handler = std::function<void(request&& r, const std::shared_ptr<responder>& answer)>;

/// What a server counts, for whoever keeps metrics. Called on the I/O thread.
struct server_events {
  std::function<void(std::size_t open)> connections = [](std::size_t) {};
  /// Refused before any handler saw it (431, 421, 413, 408, 400), or `client_gone`,
  /// `client_stalled`.
  std::function<void(const std::string& what)> refused = [](const std::string&) {};
};

struct server_options {
  std::string address;
  std::uint16_t port = 0;                 ///< 0: any free one
  std::vector<std::string> server_names;  ///< `gateway.server_names`
  config::limits limits;
  server_events events;
  std::shared_ptr<trust::credentials> credentials;  ///< null: plain HTTP; else TLS only
};

/// An HTTP/1.1 server with one I/O thread of its own, which sleeps when there is nothing to do. At
/// `connections_max` an idle connection makes room for a new one; where none is idle, a new one
/// waits for a second, and is then turned away with 503. A handshake of TLS has `header_timeout`,
/// and counts as idle. Public functions are thread-safe.
class server {
 public:
  server(server_options options, handler on_request);
  /// Closes everything.
  ~server();
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// Binds and serves. Errors: `port_in_use`, `address_not_ours`, `address_invalid`,
  /// `listen_failed`; each names the address.
  expected<void> start();
  std::uint16_t local_port() const;

  /// After `notice` stops accepting and closes idle connections; answers get `Connection: close`.
  /// When no answer is open any more, or after `limit`, when those that are get an error event,
  /// calls `done` once on the I/O thread.
  void drain(std::chrono::milliseconds notice, std::chrono::milliseconds limit,
             std::function<void()> done);
  /// Closes all connections and joins the thread. Not from the I/O thread.
  void stop();

  class impl;

 private:
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::gateway::http
