#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

namespace troupe::transfer::ucx {

/// Work that other threads hand to the progress thread, and the descriptor that wakes it. Bounded
/// by what callers have in flight: control backlog and buffers.
class command_queue {
 public:
  using command = std::function<void()>;

  command_queue();
  ~command_queue();
  command_queue(const command_queue&) = delete;
  command_queue& operator=(const command_queue&) = delete;

  /// Any thread, callbacks of the progress thread included.
  void post(command work);
  /// Progress thread: runs what was posted so far; whether there was any.
  bool run();
  int wake_fd() const { return wake_fd_; }

  /// Progress thread: announces sleep; false: work came meanwhile. `awake` ends it.
  bool prepare_sleep();
  void awake();

 private:
  void wake();

  std::mutex mutex_;
  std::vector<command> posted_;
  std::vector<command> running_;
  std::atomic<bool> any_{false};
  std::atomic<bool> sleeping_{false};
  int wake_fd_;
};

}  // namespace troupe::transfer::ucx
