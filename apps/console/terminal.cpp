#include "apps/console/terminal.hpp"

#include "actors/console/frames.hpp"

#include <kj/exception.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace troupe::apps::console {

namespace {

constexpr std::size_t read_bytes = 64 * 1024;

error lost(const std::string& why) {
  return {"connection_lost", "the connection to the node is lost: " + why};
}

int connected_socket(const std::string& address, std::uint16_t port) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const bool six = ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) != 1;
  if (six && ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) {
    errno = EINVAL;
    return -1;
  }
  const int fd = ::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit{reply_timeout.count(), 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const auto* to = six ? reinterpret_cast<const sockaddr*>(&v6)
                       : reinterpret_cast<const sockaddr*>(&v4);
  if (::connect(fd, to, six ? sizeof v6 : sizeof v4) == 0) return fd;
  const int why = errno;
  ::close(fd);
  errno = why;
  return -1;
}

}  // namespace

expected<terminal> terminal::connect(const std::string& address, std::uint16_t port) {
  const int fd = connected_socket(address, port);
  if (fd >= 0) return terminal{fd};
  return error{"cannot_connect", "cannot connect to the admin port " + address + ":" +
                                     std::to_string(port) + ": " + std::strerror(errno) +
                                     "; is the node running?"};
}

terminal::~terminal() {
  if (fd_ >= 0) ::close(fd_);
}

void terminal::begin(msg::ConsoleRequest::Builder out, const std::vector<std::string>& hosts) {
  out.setId(++id_);
  out.setProtocol(troupe::console::protocol);
  auto list = out.initHosts(static_cast<unsigned>(hosts.size()));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, hosts[i]);
}

expected<answer> terminal::exchange(const msg::frozen_message& request,
                                    const on_progress& progress) {
  const auto frame = troupe::console::to_frame(request);
  for (std::size_t at = 0; at < frame.size();) {
    const auto n = ::send(fd_, frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
    if (n < 0) return lost(std::strerror(errno));
    at += static_cast<std::size_t>(n);
  }
  answer out;
  troupe::console::frame_reader frames;
  std::vector<char> bytes(read_bytes);
  while (true) {
    auto m = frames.next();
    if (!m) return std::move(m).error();
    if (!*m) {
      const auto n = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (n == 0) return lost("the node closed it");
      if (n < 0) return lost(errno == EAGAIN ? "it does not answer" : std::strerror(errno));
      frames.push({bytes.data(), static_cast<std::size_t>(n)});
      continue;
    }
    try {
      msg::view<msg::ConsoleReply> in{**m};
      if (in->getId() != id_) continue;
      switch (in->which()) {
      case msg::ConsoleReply::REPORT:
        out.reports.push_back(**std::move(m));
        break;
      case msg::ConsoleReply::PROGRESS:
        if (progress) progress(*in);
        break;
      case msg::ConsoleReply::END:
        for (auto s : in->getEnd())
          out.silent.emplace_back(s.getHost().cStr(), s.getReason().cStr());
        return out;
      case msg::ConsoleReply::FAILURE:
        return error{in->getFailure().getCode().cStr(), in->getFailure().getMessage().cStr()};
      }
    } catch (const kj::Exception&) {
      return lost("it sent what cannot be read");
    }
  }
}

}  // namespace troupe::apps::console
