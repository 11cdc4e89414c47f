#pragma once

#include "actors/trust/credentials.hpp"
#include "messages/base/expected.hpp"
#include "messages/console.capnp.h"
#include "messages/envelope.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::apps::console {

/// Beyond what a session gives the hosts: for the session itself.
inline constexpr std::chrono::seconds reply_timeout{15};

/// What a request brought.
struct answer {
  std::vector<msg::frozen_message> reports;                 ///< `ConsoleReply` with a report
  std::vector<std::pair<std::string, std::string>> silent;  ///< host and reason
};

/// A connection to a node's admin port. Blocking, one thread.
class terminal {
 public:
  /// What the two sides show each other; without credentials they don't.
  struct trust_options {
    std::shared_ptr<trust::credentials> credentials;
    std::string host;  ///< whose certificate the node must show
  };
  /// Errors: `cannot_connect`, naming the address; `tls_refused` with the reason.
  static expected<terminal> connect(const std::string& address, std::uint16_t port,
                                    const trust_options& by);
  terminal(terminal&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), tls_(std::move(other.tls_)) {}
  terminal& operator=(terminal&&) = delete;
  ~terminal();

  using on_progress = std::function<void(msg::ConsoleReply::Reader)>;

  /// Gives an order. `fill(ConsoleOrder::Builder)` writes it; `progress` hears how it goes, until
  /// it is carried out. Errors: as `ask`.
  template <class Fill>
  expected<answer> order(Fill fill, const on_progress& progress) {
    msg::draft<msg::ConsoleRequest> d;
    begin(*d, {});
    fill(d->initOrder());
    auto e = std::move(d).freeze();
    if (!e) return std::move(e).error();
    return exchange(e->body, progress);
  }

  /// Asks these hosts, or all. `fill(NodeQuery::Builder)` writes the question. Errors:
  /// `connection_lost`, or what the session says.
  template <class Fill>
  expected<answer> ask(const std::vector<std::string>& hosts, Fill fill) {
    msg::draft<msg::ConsoleRequest> d;
    begin(*d, hosts);
    fill(d->initQuery());
    auto e = std::move(d).freeze();
    if (!e) return std::move(e).error();
    return exchange(e->body);
  }

 private:
  explicit terminal(int fd) : fd_(fd) {}
  expected<void> greet(const trust_options& by);
  /// As send(2) and recv(2).
  ssize_t send_some(const char* bytes, std::size_t size);
  ssize_t receive_some(char* into, std::size_t size);
  std::string why() const;
  void begin(msg::ConsoleRequest::Builder out, const std::vector<std::string>& hosts);
  expected<answer> exchange(const msg::frozen_message& request, const on_progress& progress = {});

  int fd_;
  std::shared_ptr<SSL> tls_;  ///< null: plain
  std::uint32_t id_ = 0;
};

}  // namespace troupe::apps::console
