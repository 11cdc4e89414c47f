#pragma once

#include "tests/support/http_client.hpp"

#include <openssl/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::test {

/// As `raw_client`, by TLS, and with the server's certificate checked against a CA.
class tls_client final : public buffered_reader {
 public:
  struct options {
    std::string ca_file;
    std::string alpn = "http/1.1";
    int version_max = 0;  ///< of TLS; 0: the newest
  };

  /// Throws with OpenSSL's reason when there is no connection or no handshake.
  tls_client(std::uint16_t port, const options& o);
  ~tls_client();
  tls_client(const tls_client&) = delete;
  tls_client& operator=(const tls_client&) = delete;

  bool send(std::string_view bytes);
  /// The serial number of the server's certificate, in hex.
  std::string serial() const;
  std::string alpn() const;
  /// The server said that nothing follows.
  bool ended_properly() const { return ended_properly_; }
  /// Without a word.
  void close();

 private:
  bool receive(std::chrono::steady_clock::time_point until) override;

  int fd_ = -1;
  std::shared_ptr<SSL_CTX> context_;
  std::shared_ptr<SSL> tls_;
  bool ended_properly_ = false;
};

}  // namespace troupe::test
