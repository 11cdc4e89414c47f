#pragma once

#include <string>
#include <vector>

#include <chrono>
#include <cstddef>

#include <sys/types.h>

namespace troupe::transfer::testing {

/// A running `transfer_peer`. Killed when this ends.
class peer_process {
 public:
  peer_process();
  ~peer_process();
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  const std::vector<std::byte>& address() const { return address_; }
  void tell(const std::string& line);
  /// The next line; empty: none came in time, or the process has ended.
  std::string line(std::chrono::milliseconds at_most);
  /// Reads lines until one is `wanted`; false: it didn't come.
  bool until(const std::string& wanted, std::chrono::milliseconds at_most);
  /// SIGSTOP, in force when this returns.
  void stop();
  /// SIGKILL, and reaped when this returns.
  void kill();

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
  std::vector<std::byte> address_;
};

std::string hex(const std::vector<std::byte>& bytes);

}  // namespace troupe::transfer::testing
