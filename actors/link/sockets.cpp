#include "actors/link/sockets.hpp"

#include <caf/all.hpp>
#include <caf/detail/socket_guard.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/stream_impl.hpp>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::link {

namespace {

namespace net = caf::io::network;

endpoint remote_of(int fd) {
  auto address = net::remote_addr_of_fd(fd);
  auto port = net::remote_port_of_fd(fd);
  return {address ? *address : std::string{}, port ? *port : std::uint16_t{0}};
}

/// For a host to answer at all: one that is gone would hold up the way to the others, and this
/// process's end, for minutes.
constexpr std::chrono::milliseconds connect_timeout{2'000};
/// Threads that connect; with more peers than that some share one.
constexpr std::size_t lines_max = 32;

bool is_connected(int fd) {
  pollfd p{fd, POLLOUT, 0};
  int failure = 0;
  socklen_t size = sizeof failure;
  return ::poll(&p, 1, static_cast<int>(connect_timeout.count())) == 1 &&
         ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0;
}

/// A socket that doesn't block; -1: nobody is there.
int connected_socket(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all{found, &::freeaddrinfo};
  for (const auto* x = found; x != nullptr; x = x->ai_next) {
    const int fd = ::socket(x->ai_family, x->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (::connect(fd, x->ai_addr, x->ai_addrlen) == 0 || (errno == EINPROGRESS && is_connected(fd)))
      return fd;
    ::close(fd);
  }
  return -1;
}

/// A session in the words of CAF's streams.
class stream_policy {
 public:
  /// `room`: where it waits for the other side's proof; null: whoever connects waits nowhere.
  stream_policy(int fd, std::unique_ptr<session> by, std::shared_ptr<waiting_room> room)
      : fd_(fd), session_(std::move(by)), room_(std::move(room)) {
    if (room_) room_->enter(fd_, waiting_room::clock::now());
  }
  // The stream closes the socket after this.
  ~stream_policy() { leave(); }
  stream_policy(const stream_policy&) = delete;
  stream_policy& operator=(const stream_policy&) = delete;

  net::rw_state read_some(std::size_t& got, int, void* into, std::size_t size) {
    const auto r = session_->read(into, size, got);
    if (room_ && session_->proved()) leave();
    return translate(r);
  }
  net::rw_state write_some(std::size_t& taken, int, const void* bytes, std::size_t size) {
    const auto r = session_->write(bytes, size, taken);
    // Nothing to write: that was the beginning.
    if (size == 0 && r != session::result::over) return net::rw_state::indeterminate;
    return translate(r);
  }
  bool must_read_more(int, std::size_t threshold) {
    const auto pending = session_->pending();
    return pending > 0 && pending >= threshold;
  }

 private:
  static net::rw_state translate(session::result r) {
    return r == session::result::over ? net::rw_state::failure : net::rw_state::success;
  }
  void leave() {
    if (auto room = std::exchange(room_, nullptr)) room->leave(fd_);
  }

  const int fd_;
  const std::unique_ptr<session> session_;
  std::shared_ptr<waiting_room> room_;
};

/// A connection, as CAF's own, but for the policy.
class scribe final : public caf::io::scribe {
 public:
  scribe(net::default_multiplexer& backend, int fd, std::unique_ptr<session> by,
         std::shared_ptr<waiting_room> room)
      : caf::io::scribe(net::conn_hdl_from_socket(fd)),
        stream_(backend, fd, fd, std::move(by), std::move(room)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (std::exchange(launched_, true)) return;
    stream_.start(this);
    // Whoever connects speaks first, also with nothing to say yet.
    stream_.force_empty_write(this);
  }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  void flush() override { stream_.flush(this); }
  std::string addr() const override { return remote_of(stream_.fd()).first; }
  std::uint16_t port() const override { return remote_of(stream_.fd()).second; }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  bool launched_ = false;
  net::stream_impl<stream_policy> stream_;
};

class doorman final : public net::doorman_impl {
 public:
  doorman(net::default_multiplexer& backend, int fd, guard by, std::shared_ptr<waiting_room> room)
      : net::doorman_impl(backend, fd), guard_(std::move(by)), room_(std::move(room)) {}

  bool new_connection() override {
    // The broker may be gone while the acceptor still has events.
    if (detached()) return false;
    auto& backend = acceptor_.backend();
    const int fd = acceptor_.accepted_socket();
    caf::detail::socket_guard closing{fd};
    net::nonblocking(fd, true);
    auto made = caf::make_counted<scribe>(backend, fd, guard_.accept(fd, remote_of(fd)), room_);
    closing.release();  // the scribe closes it
    const auto handle = made->hdl();
    parent()->add_scribe(std::move(made));
    return caf::io::doorman::new_connection(&backend, handle);
  }

 private:
  const guard guard_;
  const std::shared_ptr<waiting_room> room_;
};

net::default_multiplexer& backend_of(caf::actor_system& system) {
  return static_cast<net::default_multiplexer&>(system.middleman().backend());
}

/// Connects to some peers, one after the other, on a thread of its own: connecting blocks.
class line final : public caf::io::middleman_actor_impl {
 public:
  line(caf::actor_config& config, caf::actor broker, std::optional<guard> by)
      : caf::io::middleman_actor_impl(config, std::move(broker)), guard_(std::move(by)) {}

  const char* name() const override { return "line"; }

 protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& address,
                                             std::uint16_t port) override {
    if (guard_ && !guard_->knows({address, port})) return caf::sec::cannot_connect_to_node;
    const int fd = connected_socket(address, port);
    if (fd < 0) return caf::sec::cannot_connect_to_node;
    if (!guard_) return backend_of(system()).new_scribe(fd);
    return caf::io::scribe_ptr{caf::make_counted<scribe>(
        backend_of(system()), fd, guard_->connect(fd, {address, port}), nullptr)};
  }
  /// Ports are opened by `open_door` only.
  caf::expected<caf::io::doorman_ptr> open(std::uint16_t, const char*, bool) override {
    return caf::sec::cannot_open_port;
  }

 private:
  const std::optional<guard> guard_;
};

/// A peer that doesn't answer at all costs its line `connect_timeout` a time, and is asked for
/// again as soon as its connector has had enough: three of them on one line, and nobody else's turn
/// would ever come in time.
struct dialler_state {
  std::map<endpoint, std::size_t> line_of;
  std::vector<caf::actor> lines;
  static constexpr const char* name = "dialler";

  ~dialler_state() {
    // They ignore every other reason.
    for (const auto& x : lines) caf::anon_send_exit(x, caf::exit_reason::kill);
  }
};

caf::behavior dialler(caf::stateful_actor<dialler_state>* self, const std::optional<guard>& by) {
  return {[self, by](caf::connect_atom connect, std::string& address, std::uint16_t port) {
    auto& s = self->state;
    const auto [known, first] = s.line_of.try_emplace({address, port},
                                                      s.line_of.size() % lines_max);
    if (known->second == s.lines.size()) {
      auto broker = self->system().middleman().named_broker<caf::io::basp_broker>(
          caf::atom("BASP"));
      s.lines.push_back(caf::actor_cast<caf::actor>(
          self->system().spawn<line, caf::detached + caf::hidden>(std::move(broker), by)));
    }
    return self->delegate(s.lines[known->second], connect, std::move(address), port);
  }};
}

}  // namespace

caf::expected<caf::io::doorman_ptr> open_door(caf::actor_system& system, std::uint16_t port,
                                              const std::string& address, guard by,
                                              std::shared_ptr<waiting_room> room) {
  auto fd = net::new_tcp_acceptor_impl(port, address.c_str(), true);
  if (!fd) return std::move(fd.error());
  return caf::io::doorman_ptr{
      caf::make_counted<doorman>(backend_of(system), *fd, std::move(by), std::move(room))};
}

caf::actor spawn_dialler(caf::actor_system& system, std::optional<guard> by) {
  return system.spawn<caf::hidden>(dialler, std::move(by));
}

void end_dialler(const caf::actor& dialler) {
  caf::anon_send_exit(dialler, caf::exit_reason::kill);
}

}  // namespace troupe::link
