#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace troupe::bench::testing {

/// An HTTP server of a thread per connection, whose answers are written byte by byte by the test.
class test_server {
 public:
  using tcp = boost::asio::ip::tcp;

  struct request {
    std::string target;
    std::string body;
    std::string authorization;
  };

  /// The answer's side of a connection.
  class writer {
   public:
    explicit writer(tcp::socket& socket) : socket_(socket) {}

    void raw(const std::string& bytes) {
      boost::system::error_code ignored;
      boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
    }
    void plain(unsigned status, const std::string& body, bool keep = true) {
      raw(fmt::format(
          "HTTP/1.1 {} x\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
          status, keep ? "" : "Connection: close\r\n", body.size(), body));
    }
    void begin_stream() {
      raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
          "chunked\r\n\r\n");
    }
    void event(const std::string& data) {
      const auto text = "data: " + data + "\n\n";
      raw(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
    }
    void end_stream() { raw("0\r\n\r\n"); }
    void close() {
      boost::system::error_code ignored;
      socket_.shutdown(tcp::socket::shutdown_both, ignored);
    }

   private:
    tcp::socket& socket_;
  };

  using handler = std::function<void(const request&, writer&)>;

  explicit test_server(handler h) : handler_(std::move(h)) {
    thread_ = std::thread{[this] { accept(); }};
  }

  ~test_server() {
    stopping_ = true;
    // Closing a descriptor does not wake a thread that blocks on it; shutting it down does.
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
    thread_.join();
    {
      const std::lock_guard lock{mutex_};
      for (auto& c : connections_) ::shutdown(c.socket.native_handle(), SHUT_RDWR);
    }
    for (auto& c : connections_) c.thread.join();
  }

  std::string url() const {
    return fmt::format("http://127.0.0.1:{}", acceptor_.local_endpoint().port());
  }
  std::string port() const { return fmt::format("{}", acceptor_.local_endpoint().port()); }
  std::size_t connections() const {
    const std::lock_guard lock{mutex_};
    return connections_.size();
  }
  std::vector<request> requests() const {
    const std::lock_guard lock{mutex_};
    return requests_;
  }

 private:
  struct accepted {
    explicit accepted(tcp::socket s) : socket(std::move(s)) {}
    tcp::socket socket;
    std::thread thread;
  };

  void accept() {
    while (!stopping_) {
      boost::system::error_code failure;
      tcp::socket socket{io_};
      acceptor_.accept(socket, failure);
      if (failure) return;
      socket.set_option(tcp::no_delay{true});
      const std::lock_guard lock{mutex_};
      auto& c = connections_.emplace_back(std::move(socket));
      c.thread = std::thread{[this, &c] { serve(c.socket); }};
    }
  }

  void serve(tcp::socket& socket) {
    namespace http = boost::beast::http;
    boost::beast::flat_buffer buffer;
    while (true) {
      http::request<http::string_body> message;
      boost::system::error_code failure;
      http::read(socket, buffer, message, failure);
      if (failure) return;
      request r{std::string{message.target()}, message.body(),
                std::string{message[http::field::authorization]}};
      {
        const std::lock_guard lock{mutex_};
        requests_.push_back(r);
      }
      writer w{socket};
      handler_(r, w);
    }
  }

  handler handler_;
  boost::asio::io_context io_;
  tcp::acceptor acceptor_{io_, {boost::asio::ip::make_address("127.0.0.1"), 0}};
  mutable std::mutex mutex_;
  std::list<accepted> connections_;
  std::vector<request> requests_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace troupe::bench::testing
