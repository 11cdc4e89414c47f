#pragma once

#include <openssl/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::test {

/// As `raw_client`, by TLS, and with the server's certificate checked against a CA.
class tls_client {
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
  /// What came until `what` is in it, the peer closed, or the limit passed.
  std::string read_until(std::string_view what,
                         std::chrono::milliseconds limit = std::chrono::seconds(20));
  std::string read_all(std::chrono::milliseconds limit = std::chrono::seconds(20));
  /// The serial number of the server's certificate, in hex.
  std::string serial() const;
  std::string alpn() const;
  /// The server said that nothing follows.
  bool ended_properly() const { return ended_properly_; }
  /// Without a word.
  void close();

 private:
  bool receive(std::chrono::steady_clock::time_point until);

  int fd_ = -1;
  std::shared_ptr<SSL_CTX> context_;
  std::shared_ptr<SSL> tls_;
  bool ended_properly_ = false;
  std::string buffer_;
};

}  // namespace troupe::test
