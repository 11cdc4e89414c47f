#pragma once

#include "messages/base/expected.hpp"

#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>

#include <memory>
#include <string>

namespace troupe::bench {

using tls_context = boost::asio::ssl::context;

/// Whom to believe at `https://`.
struct tls_settings {
  bool insecure = false;  ///< whoever answers
  std::string ca_file;    ///< PEM; empty: the CAs of the system
};

/// For clients, TLS 1.2 and newer; shared by all connections, of any thread. Errors:
/// `ca_unreadable`, `tls_unavailable`.
expected<std::shared_ptr<tls_context>> make_tls_context(const tls_settings& settings);

/// Before the handshake: asks for the certificate of `host`, a name or an address, and holds it to
/// that where certificates are checked.
void expect_host(SSL* connection, const std::string& host);

/// Why a handshake failed, and what to do where a certificate was not believed.
std::string handshake_failure(const SSL* connection, const boost::system::error_code& ec);

}  // namespace troupe::bench
