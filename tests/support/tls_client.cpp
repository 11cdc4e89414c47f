#include "tests/support/tls_client.hpp"

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace troupe::test {

using clock = std::chrono::steady_clock;

namespace {

[[noreturn]] void fail(const std::string& what) {
  const char* why = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  throw std::runtime_error("tls_client: " + what + (why == nullptr ? "" : std::string{": "} + why));
}

}  // namespace

tls_client::tls_client(std::uint16_t port, const options& o)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      context_(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free) {
  ::signal(SIGPIPE, SIG_IGN);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    fail("cannot connect");
  if (SSL_CTX_load_verify_file(context_.get(), o.ca_file.c_str()) != 1) fail("no CA");
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  if (o.version_max != 0) SSL_CTX_set_max_proto_version(context_.get(), o.version_max);
  tls_ = {SSL_new(context_.get()), &SSL_free};
  const auto offer = std::string(1, static_cast<char>(o.alpn.size())) + o.alpn;
  if (!o.alpn.empty())
    SSL_set_alpn_protos(tls_.get(), reinterpret_cast<const unsigned char*>(offer.data()),
                        static_cast<unsigned>(offer.size()));
  SSL_set_fd(tls_.get(), fd_);
  if (SSL_connect(tls_.get()) != 1) fail("no handshake");
}

tls_client::~tls_client() { close(); }

void tls_client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool tls_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const int n = SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool tls_client::receive(clock::time_point until) {
  if (SSL_pending(tls_.get()) == 0 && !readable(fd_, until)) return false;
  char bytes[16 * 1024];
  const int n = SSL_read(tls_.get(), bytes, sizeof bytes);
  if (n <= 0) {
    ended_properly_ = SSL_get_error(tls_.get(), n) == SSL_ERROR_ZERO_RETURN;
    ERR_clear_error();
    return false;
  }
  buffer_.append(bytes, static_cast<std::size_t>(n));
  return true;
}

std::string tls_client::serial() const {
  const std::shared_ptr<X509> shown{SSL_get1_peer_certificate(tls_.get()), &X509_free};
  const std::shared_ptr<BIGNUM> number{
      ASN1_INTEGER_to_BN(X509_get0_serialNumber(shown.get()), nullptr), &BN_free};
  char* hex = BN_bn2hex(number.get());
  std::string out = hex;
  OPENSSL_free(hex);
  return out;
}

std::string tls_client::alpn() const {
  const unsigned char* data = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(tls_.get(), &data, &size);
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace troupe::test
