#include "apps/bench/tls.hpp"

#include <boost/asio/ip/address.hpp>

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace troupe::bench {

using boost::system::error_code;

expected<std::shared_ptr<tls_context>> make_tls_context(const tls_settings& settings) {
  error_code ec;
  auto context = std::make_shared<tls_context>(tls_context::tls_client);
  if (SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION) != 1)
    return error{"tls_unavailable", "OpenSSL has no TLS 1.2"};
  // What comes has lengths of its own: a server that just closes is like any other.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  if (settings.insecure) return context;
  context->set_verify_mode(boost::asio::ssl::verify_peer, ec);
  if (settings.ca_file.empty())
    context->set_default_verify_paths(ec);
  else
    context->load_verify_file(settings.ca_file, ec);
  if (ec)
    return error{"ca_unreadable",
                 fmt::format("{}: no certificates of CAs in PEM can be read there: {}",
                             settings.ca_file.empty() ? "the system" : settings.ca_file,
                             ec.message())};
  return context;
}

void expect_host(SSL* connection, const std::string& host) {
  error_code no_address;
  boost::asio::ip::make_address(host, no_address);
  if (no_address) {
    SSL_set_tlsext_host_name(connection, host.c_str());
    SSL_set1_host(connection, host.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), host.c_str());
  }
}

std::string handshake_failure(const SSL* connection, const error_code& ec) {
  const auto verdict = SSL_get_verify_result(connection);
  if (verdict != X509_V_OK && SSL_get_verify_mode(connection) != SSL_VERIFY_NONE)
    return fmt::format("the server's certificate is not believed: {}; --ca-file names the CA to "
                       "believe, --insecure believes anybody",
                       X509_verify_cert_error_string(verdict));
  if (ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_WRONG_VERSION_NUMBER)
    return "no TLS with the server: it seems to speak plain HTTP; begin the URL with http://";
  return fmt::format("no TLS with the server: {}", ec.message());
}

}  // namespace troupe::bench
