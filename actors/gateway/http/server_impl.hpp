#pragma once

#include "actors/gateway/http/client_stream.hpp"
#include "actors/gateway/http/host_check.hpp"
#include "actors/gateway/http/server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_set>

namespace troupe::gateway::http {

namespace asio = boost::asio;
class connection;

/// The server's inside. All but the constructor, `launch` and `shut_down` runs on the I/O thread.
class server::impl {
 public:
  impl(server_options options, handler on_request);

  expected<void> launch();
  void shut_down();
  void begin_drain(std::chrono::milliseconds notice, std::chrono::milliseconds limit,
                   std::function<void()> done);

  // -- for connections ----------------------------------------------------------------------------

  const config::limits& limits() const { return options_.limits; }
  const std::shared_ptr<wake_list>& wake() const { return wake_; }
  const server_events& events() const { return options_.events; }
  const handler& on_request() const { return on_request_; }
  const known_names& known() const { return known_; }
  bool draining() const { return draining_; }
  std::uint64_t body_bytes_max() const;
  /// Bodies on their way take as much memory as prompts that are held may, and no more. False: they
  /// have it already.
  bool take_body_bytes(std::uint64_t bytes);
  void give_body_bytes(std::uint64_t bytes) { body_bytes_ -= bytes; }
  void closed(const std::shared_ptr<connection>& c);
  void answer_done();

  /// Now, as the `Date` header has it.
  const std::string& date();
  asio::io_context& io() { return io_; }
  std::uint16_t port() const { return port_; }

 private:
  void accept();
  void on_accept(boost::system::error_code ec, asio::ip::tcp::socket socket);
  void admit();
  bool make_room();
  bool close_oldest_idle();
  void wait_for_room();
  std::shared_ptr<connection> take_in();
  client_stream stream_of(asio::ip::tcp::socket socket);
  void flush_dirty();
  void sweep();
  void arm_sweep();
  void close_idle();
  void check_drained();

  server_options options_;
  known_names known_;
  handler on_request_;
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_;
  std::optional<asio::ip::tcp::socket> waiting_;  // accepted at `connections_max`
  asio::steady_timer sweep_timer_;
  asio::steady_timer accept_timer_;
  asio::steady_timer room_timer_;
  asio::steady_timer drain_timer_;
  std::chrono::milliseconds sweep_interval_;
  bool sweeping_ = false;
  bool accepting_ = false;
  bool waiting_for_room_ = false;
  bool accept_failed_ = false;
  bool full_ = false;             // a client has waited in vain
  std::size_t turned_away_ = 0;   // of `connections_`
  std::uint64_t body_bytes_ = 0;  // of bodies that are being received
  bool draining_ = false;
  bool notice_over_ = false;
  std::function<void()> drained_;
  std::shared_ptr<wake_list> wake_;
  std::unordered_set<std::shared_ptr<connection>> connections_;
  std::time_t date_second_ = 0;
  std::string date_;
  std::atomic<std::uint16_t> port_{0};
  std::thread thread_;
};

}  // namespace troupe::gateway::http
