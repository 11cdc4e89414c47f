#pragma once

#include "gpu/transfer/backend.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace troupe::bench {

/// One way of moving pieces from one process to another.
struct setting {
  transfer::proximity where = transfer::proximity::same_host;
  std::size_t piece_bytes = 0;
  std::size_t ring_bytes = 0;  ///< 0: one buffer on each side, otherwise as many as fill this
  std::size_t total_bytes = 0;

  std::string tls() const { return where == transfer::proximity::same_host ? "posix,cma" : "tcp"; }
  std::size_t slots() const {
    return ring_bytes == 0 ? 1 : (ring_bytes + piece_bytes - 1) / piece_bytes;
  }
  std::size_t pieces() const { return (total_bytes + piece_bytes - 1) / piece_bytes; }
};

/// Sends on their way at once, for all that are compared.
inline constexpr std::size_t outstanding = 4;
/// Sent before the clock starts, in pieces.
inline constexpr std::size_t warm_up = 16;

/// MiB/s, or nothing when it failed. Each starts its own processes, the sender on core 1, the
/// receiver on core 0, as far as there are two.
std::optional<double> measure_troupe(const setting& s);
/// The same UCX calls in a loop, without Troupe: active messages with rendezvous, the same error
/// mode, sleeping when idle.
std::optional<double> measure_plain(const setting& s);
/// ucx_perftest -t ucp_am_bw, which has one buffer on each side.
std::optional<double> measure_perftest(const setting& s);

/// Runs `receive(fd)` in a child process and `send(fd)` here, joined by a socket pair.
std::optional<double> in_two_processes(const std::function<void(int fd)>& receive,
                                       const std::function<std::optional<double>(int fd)>& send);
/// Length and bytes, over the socket pair.
void put(int fd, std::span<const std::byte> bytes);
std::vector<std::byte> get(int fd);

}  // namespace troupe::bench
