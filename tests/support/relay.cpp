#include "tests/support/relay.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <list>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::test {

namespace {

/// How often it looks whether a cut has begun or ended, or all is over.
constexpr int look_ms = 20;
constexpr std::size_t chunk_bytes = 64 * 1024;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}

int connected(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto at = loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return fd;
  ::close(fd);
  return -1;
}

/// What is said in one direction of a connection.
struct way {
  int from;
  int to;
  const std::atomic<bool>& cut;
  std::string held;
  bool ended = false;

  /// Whether it waits for bytes, or for room: the descriptor and the event.
  pollfd wish() const {
    if (cut || ended) return {-1, 0, 0};
    return held.empty() ? pollfd{from, POLLIN, 0} : pollfd{to, POLLOUT, 0};
  }
  void go_on() {
    if (held.empty()) {
      held.resize(chunk_bytes);
      const auto n = ::recv(from, held.data(), held.size(), MSG_DONTWAIT);
      held.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      ended = n == 0 || (n < 0 && errno != EAGAIN);
      return;
    }
    const auto n = ::send(to, held.data(), held.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) held.erase(0, static_cast<std::size_t>(n));
    ended = n < 0 && errno != EAGAIN;
  }
};

/// Both ways of it; ends as a whole when one of them does.
struct connection {
  connection(int client, int target, const std::atomic<bool>& cut_there,
             const std::atomic<bool>& cut_back)
      : fds{client, target}, ways{way{client, target, cut_there, {}},
                                  way{target, client, cut_back, {}}} {}
  ~connection() {
    for (const int fd : fds) ::close(fd);
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  std::array<int, 2> fds;
  std::array<way, 2> ways;
};

}  // namespace

relay::relay() {
  door_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto at = loopback(0);
  socklen_t size = sizeof at;
  if (::bind(door_, reinterpret_cast<const sockaddr*>(&at), size) != 0 ||
      ::listen(door_, SOMAXCONN) != 0 ||
      ::getsockname(door_, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw std::runtime_error("no port for a relay");
  port_ = ntohs(at.sin_port);
  thread_ = std::thread{[this] { run(); }};
}

relay::~relay() {
  over_ = true;
  thread_.join();
  ::close(door_);
}

void relay::run() {
  std::list<connection> all;
  std::vector<pollfd> watched;
  while (!over_) {
    watched.assign(1, {door_, POLLIN, 0});
    for (auto& c : all)
      for (auto& w : c.ways) watched.push_back(w.wish());
    if (::poll(watched.data(), watched.size(), look_ms) <= 0) continue;
    std::size_t i = 1;
    for (auto& c : all)
      for (auto& w : c.ways)
        if (watched[i++].revents != 0) w.go_on();
    all.remove_if([](const connection& c) { return c.ways[0].ended || c.ways[1].ended; });
    if (watched[0].revents == 0) continue;
    const int client = ::accept4(door_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (const int target = connected(target_); target >= 0)
      all.emplace_back(client, target, cut_there_, cut_back_);
    else
      ::close(client);
  }
}

}  // namespace troupe::test
