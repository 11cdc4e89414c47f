#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace troupe::link {

/// An address and a port.
using endpoint = std::pair<std::string, std::uint16_t>;

/// Bytes that may wait until the other side has proved who it is; more end the connection. What is
/// said that early is short, so that all of it fits into an empty socket.
inline constexpr std::size_t early_bytes_max = 4 * 1024;

/// What guards a connection between two processes, on a socket that doesn't block: nothing is read
/// from it before the other side has proved who it is, and what is written before waits. Used on
/// one thread. The socket is its owner's.
class session {
 public:
  enum class result : std::uint8_t { done, again, over };

  session() = default;
  virtual ~session() = default;
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  /// `again`: nothing was read for now.
  virtual result read(void* into, std::size_t size, std::size_t& got) = 0;
  /// `again`: nothing was taken, since the socket is full. Without bytes, whoever connects begins.
  virtual result write(const void* bytes, std::size_t size, std::size_t& taken) = 0;
  /// Can be read without the socket.
  virtual std::size_t pending() const = 0;
  /// Whether the other side has proved who it is.
  virtual bool proved() const = 0;
};

/// Makes the sessions of one kind of connections. Thread-safe.
struct guard {
  /// For a connection that came, on this socket and from there.
  std::function<std::unique_ptr<session>(int fd, const endpoint& from)> accept;
  /// For one that is to be made to there; null: nobody is known there, and nothing connects.
  std::function<std::unique_ptr<session>(int fd, const endpoint& to)> connect;
  /// Whether `connect` knows who is there.
  std::function<bool(const endpoint& to)> knows;
};

}  // namespace troupe::link
