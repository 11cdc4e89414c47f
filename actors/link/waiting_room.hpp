#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>

namespace troupe::link {

/// For whoever connects, to prove who it is; then the connection ends, at the next sweep.
inline constexpr std::chrono::milliseconds proof_timeout{5'000};
inline constexpr std::chrono::milliseconds sweep_interval{1'000};
/// Connections at a port that have not proved who they are; the oldest ends when another one comes.
inline constexpr std::size_t unproved_max = 256;

/// Connections that came and have not proved yet who they are, so that silent ones take up no more
/// than a share of this process's descriptors. It ends one by shutting its socket down, which its
/// owner then sees. Thread-safe.
class waiting_room {
 public:
  using clock = std::chrono::steady_clock;

  void enter(int fd, clock::time_point now);
  /// It has proved itself, or is about to be closed.
  void leave(int fd);
  /// Ends those that have had their time.
  void sweep(clock::time_point now);
  std::size_t size() const;

 private:
  struct guest {
    int fd;
    clock::time_point since;
  };
  void end_first();
  void end_late(clock::time_point now);

  mutable std::mutex mutex_;
  std::list<guest> all_;  ///< oldest first
};

}  // namespace troupe::link
