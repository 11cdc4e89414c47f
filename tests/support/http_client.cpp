#include "tests/support/http_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace troupe::test {

using clock = std::chrono::steady_clock;

bool buffered_reader::readable(int fd, clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    if (left <= 0) return false;
    const auto ready = ::poll(&p, 1, static_cast<int>(left));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

raw_client::raw_client(std::uint16_t port, int receive_buffer_bytes)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0)
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error("raw_client: cannot connect");
}

raw_client::~raw_client() { close(); }

void raw_client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void raw_client::half_close() { ::shutdown(fd_, SHUT_WR); }

bool raw_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool raw_client::receive(clock::time_point until) {
  if (!readable(fd_, until)) return false;
  char bytes[16 * 1024];
  const auto n = ::recv(fd_, bytes, sizeof bytes, 0);
  if (n <= 0) {
    closed_ = true;
    return false;
  }
  buffer_.append(bytes, static_cast<std::size_t>(n));
  return true;
}

std::string buffered_reader::read_until(std::string_view what, std::chrono::milliseconds limit) {
  const auto until = clock::now() + limit;
  auto at = buffer_.find(what);
  while (at == std::string::npos && receive(until)) at = buffer_.find(what);
  const auto end = at == std::string::npos ? buffer_.size() : at + what.size();
  auto out = buffer_.substr(0, end);
  buffer_.erase(0, end);
  return out;
}

std::string buffered_reader::read_all(std::chrono::milliseconds limit) {
  const auto until = clock::now() + limit;
  while (receive(until)) {
  }
  return std::exchange(buffer_, {});
}

std::string raw_client::read_reply(std::chrono::milliseconds limit) {
  const auto until = clock::now() + limit;
  auto head = read_until("\r\n\r\n", limit);
  constexpr std::string_view name = "Content-Length: ";
  const auto at = head.find(name);
  if (at == std::string::npos) return head;
  const auto length = std::strtoul(head.c_str() + at + name.size(), nullptr, 10);
  while (buffer_.size() < length && receive(until)) {
  }
  head += buffer_.substr(0, length);
  buffer_.erase(0, length);
  return head;
}

std::string post(std::string_view path, std::string_view body, std::string_view more_headers) {
  std::string text = "POST ";
  text += path;
  text += " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  text += more_headers;
  text += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  text += body;
  return text;
}

std::string get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

int status_of(const std::string& answer) {
  constexpr std::size_t at = sizeof("HTTP/1.1 ") - 1;
  return answer.size() > at + 3 ? std::atoi(answer.c_str() + at) : 0;
}

}  // namespace troupe::test
