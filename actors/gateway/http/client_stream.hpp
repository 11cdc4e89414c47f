#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <openssl/ssl.h>

#include <cstddef>
#include <utility>
#include <variant>

namespace troupe::gateway::http {

namespace asio = boost::asio;

/// A client's bytes, plain or by TLS: one branch for each call, none for each byte. As the sockets
/// that it is made of, it is used on one thread, with one read and one write under way at most.
class client_stream {
 public:
  using tcp = asio::ip::tcp;
  using error_code = boost::system::error_code;

  explicit client_stream(tcp::socket socket)
      : stream_(std::in_place_type<tcp::socket>, std::move(socket)) {}
  /// By TLS: begins with `handshake`. Takes the connection over.
  client_stream(tcp::socket socket, SSL* connection)
      : stream_(std::in_place_type<tls>, std::move(socket), connection) {}

  bool encrypted() const { return std::holds_alternative<tls>(stream_); }
  tcp::socket& socket() {
    auto* secure = std::get_if<tls>(&stream_);
    return secure != nullptr ? secure->next_layer() : std::get<tcp::socket>(stream_);
  }

  /// `then(error_code)`.
  template <class Then>
  void handshake(Then then) {
    std::get<tls>(stream_).async_handshake(asio::ssl::stream_base::server, std::move(then));
  }

  /// `then(error_code, bytes)`.
  template <class Then>
  void read_some(asio::mutable_buffer into, Then then) {
    if (auto* secure = std::get_if<tls>(&stream_))
      secure->async_read_some(into, std::move(then));
    else
      std::get<tcp::socket>(stream_).async_read_some(into, std::move(then));
  }

  /// By TLS only: `then(error_code, bytes)`. The bytes must stay where they are until then.
  template <class Then>
  void write_some(asio::const_buffer bytes, Then then) {
    std::get<tls>(stream_).async_write_some(bytes, std::move(then));
  }

  /// Nothing more is said; the other side may go on.
  template <class Then>
  void shut_down_sending(Then then) {
    error_code ignored;
    if (auto* secure = std::get_if<tls>(&stream_))
      secure->async_shutdown(std::move(then));
    else
      std::get<tcp::socket>(stream_).shutdown(tcp::socket::shutdown_send, ignored);
  }

  /// After a handshake that failed: the client never spoke TLS, and is answered in plain words.
  void give_up_encryption() {
    auto plain = std::move(socket());
    stream_.emplace<tcp::socket>(std::move(plain));
  }

 private:
  using tls = asio::ssl::stream<tcp::socket>;

  std::variant<tcp::socket, tls> stream_;
};

}  // namespace troupe::gateway::http
