#include "actors/gateway/http/server.hpp"

#include "actors/gateway/http/connection.hpp"
#include "actors/gateway/http/limits.hpp"
#include "actors/gateway/http/server_impl.hpp"

#include <boost/asio/post.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

namespace troupe::gateway::http {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

std::chrono::milliseconds sweep_interval_for(const config::limits& l) {
  auto shortest = std::min(
      {l.header_timeout, l.body_timeout, l.idle_timeout, l.stalled_client_timeout});
  return std::clamp<std::chrono::milliseconds>(shortest / 4, sweep_interval_min,
                                               sweep_interval_max);
}

error listen_error(const error_code& ec, const server_options& o, const char* what) {
  const auto where = fmt::format("{}:{}", o.address, o.port);
  if (ec == asio::error::address_in_use)
    return {"port_in_use", fmt::format("cannot listen on {}: the port is in use", where)};
  if (ec.value() == EADDRNOTAVAIL)
    return {"address_not_ours",
            fmt::format("cannot listen on {}: the address is not one of this machine", where)};
  return {"listen_failed", fmt::format("cannot listen on {}: {}: {}", where, what, ec.message())};
}

openai::api_error shutting_down() {
  return openai::make_error(503, "shutting_down",
                            "The server is shutting down; send the request again.");
}

}  // namespace

server::impl::impl(server_options options, handler on_request)
    : options_(std::move(options)),
      known_(known_names::of(options_.address, options_.credentials != nullptr,
                             options_.server_names)),
      on_request_(std::move(on_request)), io_(1), acceptor_(io_), sweep_timer_(io_),
      accept_timer_(io_), room_timer_(io_), drain_timer_(io_),
      sweep_interval_(sweep_interval_for(options_.limits)),
      wake_(std::make_shared<wake_list>([this] { asio::post(io_, [this] { flush_dirty(); }); })) {}

expected<void> server::impl::launch() {
  error_code ec;
  const auto address = asio::ip::make_address(options_.address, ec);
  if (ec)
    return error{"address_invalid",
                 fmt::format("cannot listen on '{}': not an IP address", options_.address)};
  const asio::ip::tcp::endpoint where{address, options_.port};
  acceptor_.open(where.protocol(), ec);
  if (ec) return listen_error(ec, options_, "open");
  acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
  acceptor_.bind(where, ec);
  if (ec) return listen_error(ec, options_, "bind");
  acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return listen_error(ec, options_, "listen");
  port_ = acceptor_.local_endpoint(ec).port();
  accept();
  thread_ = std::thread([this] {
    const auto work = asio::make_work_guard(io_);
    while (!io_.stopped()) {
      try {
        io_.run();
      } catch (const std::exception& e) {
        // Only for want of memory: whoever threw has lost its connection, the others go on.
        spdlog::error("gateway event=handler_threw what=\"{}\"", e.what());
      }
    }
  });
  return ok;
}

void server::impl::shut_down() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    error_code ignored;
    acceptor_.close(ignored);
    for (const auto& c : std::exchange(connections_, {})) {
      c->abandon(shutting_down());
      c->close();
    }
    io_.stop();
  });
  thread_.join();
  wake_->shut();
  // Handlers that never ran hold connections: they go before the members that those refer to.
  connections_.clear();
  waiting_.reset();
}

std::uint64_t server::impl::body_bytes_max() const {
  const auto prompt = options_.limits.prompt_bytes_max;
  return prompt + prompt / 4 + body_extra_bytes;
}

bool server::impl::take_body_bytes(std::uint64_t bytes) {
  const auto most = std::max(options_.limits.held_prompt_bytes_max, body_bytes_max());
  if (bytes > most - std::min(most, body_bytes_)) return false;
  body_bytes_ += bytes;
  return true;
}

const std::string& server::impl::date() {
  const auto now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    date_ = fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(now));
  }
  return date_;
}

// -- accepting ------------------------------------------------------------------------------------

void server::impl::accept() {
  if (accepting_ || !acceptor_.is_open()) return;
  accepting_ = true;
  acceptor_.async_accept([this](error_code ec, asio::ip::tcp::socket socket) {
    accepting_ = false;
    on_accept(ec, std::move(socket));
  });
}

void server::impl::on_accept(error_code ec, asio::ip::tcp::socket socket) {
  if (ec == asio::error::operation_aborted) return;
  if (ec) {
    // Who is idle makes room here, too; that the limit is too low is said once.
    const bool full = ec == asio::error::no_descriptors || ec.value() == ENFILE;
    if (!std::exchange(accept_failed_, true))
      spdlog::warn("gateway event=accept_failed error=\"{}\" hint=\"{}\"", ec.message(),
                   full ? "this process may open more files only by a higher limit: LimitNOFILE "
                          "in systemd, ulimit -n"
                        : "tried again");
    accept_timer_.expires_after(full && close_oldest_idle() ? 0ms : accept_retry_delay);
    accept_timer_.async_wait([this](error_code wait_error) {
      if (!wait_error) accept();
    });
    return;
  }
  accept_failed_ = false;
  waiting_.emplace(std::move(socket));
  admit();
}

/// The new connection joins the others, or waits a while until one of them ends or is idle, nobody
/// else being accepted meanwhile; then it is turned away.
void server::impl::admit() {
  if (!waiting_) return;
  if (make_room()) {
    full_ = false;
    room_timer_.cancel();
    take_in()->start();
  } else if (!full_) {
    wait_for_room();
    return;
  } else if (turned_away_ < turned_away_max) {
    ++turned_away_;
    take_in()->turn_away();
  } else {
    return;
  }
  accept();
}

client_stream server::impl::stream_of(asio::ip::tcp::socket socket) {
  if (!options_.credentials) return client_stream{std::move(socket)};
  const auto context = options_.credentials->context(connection::clock::now());
  auto* tls = SSL_new(context.get());
  if (tls == nullptr) throw std::bad_alloc{};
  return client_stream{std::move(socket), tls};
}

std::shared_ptr<connection> server::impl::take_in() {
  auto c = std::make_shared<connection>(*this, stream_of(std::move(*waiting_)));
  waiting_.reset();
  connections_.insert(c);
  events().connections(connections_.size());
  arm_sweep();
  return c;
}

void server::impl::wait_for_room() {
  if (waiting_for_room_) return;
  waiting_for_room_ = true;
  room_timer_.expires_after(room_wait);
  room_timer_.async_wait([this](error_code ec) {
    waiting_for_room_ = false;
    if (!ec) full_ = true;
    admit();
  });
}

bool server::impl::make_room() {
  return connections_.size() < options_.limits.connections_max + turned_away_ ||
         close_oldest_idle();
}

bool server::impl::close_oldest_idle() {
  std::shared_ptr<connection> oldest;
  for (const auto& c : connections_)
    if (c->idle() && (!oldest || c->since() < oldest->since())) oldest = c;
  if (!oldest) return false;
  oldest->close();
  return true;
}

void server::impl::closed(const std::shared_ptr<connection>& c) {
  if (connections_.erase(c) > 0 && c->turned_away()) --turned_away_;
  events().connections(connections_.size());
  // Not from here: whoever closes one may be about to make room itself.
  if (waiting_) asio::post(io_, [this] { admit(); });
}

// -- output and deadlines -------------------------------------------------------------------------

void server::impl::flush_dirty() {
  for (const auto& r : wake_->take()) r->output_ready();
}

void server::impl::arm_sweep() {
  if (sweeping_) return;
  sweeping_ = true;
  sweep_timer_.expires_after(sweep_interval_);
  sweep_timer_.async_wait([this](error_code ec) {
    sweeping_ = false;
    if (!ec) sweep();
  });
}

void server::impl::sweep() {
  const auto now = connection::clock::now();
  const auto snapshot = std::vector<std::shared_ptr<connection>>(connections_.begin(),
                                                                 connections_.end());
  for (const auto& c : snapshot) c->sweep(now);
  admit();
  if (!connections_.empty()) arm_sweep();  // without connections the thread sleeps
}

// -- draining -------------------------------------------------------------------------------------

void server::impl::begin_drain(std::chrono::milliseconds notice, std::chrono::milliseconds limit,
                               std::function<void()> done) {
  if (draining_) return;
  draining_ = true;
  drained_ = std::move(done);
  drain_timer_.expires_after(notice);
  drain_timer_.async_wait([this, limit](error_code ec) {
    if (ec) return;
    notice_over_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    waiting_.reset();
    close_idle();
    drain_timer_.expires_after(limit);
    drain_timer_.async_wait([this](error_code limit_error) {
      if (limit_error) return;
      for (const auto& c : std::vector(connections_.begin(), connections_.end()))
        c->abandon(shutting_down());
      // What cannot be told in time is not told.
      drain_timer_.expires_after(last_words_timeout);
      drain_timer_.async_wait([this](error_code last_error) {
        if (last_error) return;
        for (const auto& c : std::vector(connections_.begin(), connections_.end())) c->close();
        check_drained();
      });
    });
    check_drained();
  });
}

void server::impl::close_idle() {
  for (const auto& c : std::vector(connections_.begin(), connections_.end()))
    if (c->idle()) c->close();
}

void server::impl::answer_done() {
  if (draining_ && notice_over_) asio::post(io_, [this] { check_drained(); });
}

void server::impl::check_drained() {
  if (!drained_ || std::any_of(connections_.begin(), connections_.end(),
                               [](const auto& c) { return c->answering(); }))
    return;
  drain_timer_.cancel();
  std::exchange(drained_, nullptr)();
}

// -- the outside ----------------------------------------------------------------------------------

server::server(server_options options, handler on_request)
    : impl_(std::make_unique<impl>(std::move(options), std::move(on_request))) {}

server::~server() { stop(); }

expected<void> server::start() { return impl_->launch(); }

std::uint16_t server::local_port() const { return impl_->port(); }

void server::drain(std::chrono::milliseconds notice, std::chrono::milliseconds limit,
                   std::function<void()> done) {
  asio::post(impl_->io(), [this, notice, limit, done = std::move(done)]() mutable {
    impl_->begin_drain(notice, limit, std::move(done));
  });
}

void server::stop() { impl_->shut_down(); }

}  // namespace troupe::gateway::http
