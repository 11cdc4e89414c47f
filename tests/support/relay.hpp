#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace troupe::test {

/// A port on loopback that passes on to another one all that comes, both ways, until a direction is
/// cut: then what is said in it waits, as in a network that drops packets, and comes when the cut
/// ends, if the connection is still there. A thread of its own.
class relay {
 public:
  relay();
  ~relay();
  relay(const relay&) = delete;
  relay& operator=(const relay&) = delete;

  /// Where whoever connects is led; to be set before the first one comes.
  void lead_to(std::uint16_t port) { target_ = port; }
  std::uint16_t port() const { return port_; }

  /// From those who connect to the target, or the reverse.
  void cut_there(bool on) { cut_there_ = on; }
  void cut_back(bool on) { cut_back_ = on; }

 private:
  void run();

  int door_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> target_{0};
  std::atomic<bool> cut_there_{false}, cut_back_{false}, over_{false};
  std::thread thread_;
};

}  // namespace troupe::test
