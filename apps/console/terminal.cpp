#include "apps/console/terminal.hpp"

#include "actors/console/frames.hpp"
#include "actors/trust/openssl_handles.hpp"

#include <kj/exception.h>

#include <arpa/inet.h>
#include <signal.h>
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

expected<terminal> terminal::connect(const std::string& address, std::uint16_t port,
                                     const trust_options& by) {
  const int fd = connected_socket(address, port);
  if (fd >= 0) {
    terminal out{fd};
    if (by.credentials)
      if (auto done = out.greet(by); !done) return std::move(done).error();
    return out;
  }
  return error{"cannot_connect", "cannot connect to the admin port " + address + ":" +
                                     std::to_string(port) + ": " + std::strerror(errno) +
                                     "; is the node running?"};
}

expected<void> terminal::greet(const trust_options& by) {
  // A node that goes away is an error, not the end of this process.
  ::signal(SIGPIPE, SIG_IGN);
  const auto context = by.credentials->context(trust::credentials::clock::now());
  tls_ = {SSL_new(context.get()), &SSL_free};
  if (!tls_) return error{"tls_refused", "no memory for TLS"};
  SSL_set_fd(tls_.get(), fd_);
  SSL_set_hostflags(tls_.get(), X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  SSL_set1_host(tls_.get(), by.host.c_str());
  ERR_clear_error();
  errno = 0;
  if (SSL_connect(tls_.get()) == 1) return ok;
  const auto verdict = SSL_get_verify_result(tls_.get());
  return error{"tls_refused",
               "no TLS with host '" + by.host + "': " +
                   (verdict == X509_V_OK ? why()
                                         : std::string{"its certificate: "} +
                                               X509_verify_cert_error_string(verdict))};
}

ssize_t terminal::send_some(const char* bytes, std::size_t size) {
  if (!tls_) return ::send(fd_, bytes, size, MSG_NOSIGNAL);
  ERR_clear_error();
  const int n = SSL_write(tls_.get(), bytes, static_cast<int>(size));
  return n > 0 ? n : -1;
}

ssize_t terminal::receive_some(char* into, std::size_t size) {
  if (!tls_) return ::recv(fd_, into, size, 0);
  ERR_clear_error();
  errno = 0;
  const int n = SSL_read(tls_.get(), into, static_cast<int>(size));
  if (n > 0) return n;
  return SSL_get_error(tls_.get(), n) == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

std::string terminal::why() const {
  // A node says by TLS what it has against a certificate.
  if (tls_ && ERR_peek_error() != 0) return trust::openssl_reasons();
  if (errno == EAGAIN) return "it does not answer";
  return errno == 0 ? "the node closed it" : std::strerror(errno);
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
    const auto n = send_some(frame.data() + at, frame.size() - at);
    if (n < 0) return lost(why());
    at += static_cast<std::size_t>(n);
  }
  answer out;
  troupe::console::frame_reader frames;
  std::vector<char> bytes(read_bytes);
  while (true) {
    auto m = frames.next();
    if (!m) return std::move(m).error();
    if (!*m) {
      const auto n = receive_some(bytes.data(), bytes.size());
      if (n == 0) return lost("the node closed it");
      if (n < 0) return lost(why());
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
