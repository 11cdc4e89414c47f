#pragma once

#include "messages/base/expected.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::launcher {

/// How a child process ended.
struct exit_status {
  bool signalled = false;
  int code = 0;  ///< exit code, or the signal's number
};

std::string to_string(const exit_status& s);

/// Lines of a child's output that are logged per second; more are counted and dropped, so that a
/// child in panic cannot fill a disk.
inline constexpr std::uint32_t child_lines_per_second_max = 200;
/// A longer line is cut.
inline constexpr std::size_t child_line_bytes_max = 4096;

/// For a child that is killed with its owner to be gone; one that is not is left to its watcher.
inline constexpr std::chrono::milliseconds child_end_max{1'000};

/// What a child may use.
struct resource_limits {
  std::vector<std::uint32_t> cpus;  ///< empty: as its parent
  std::uint64_t data_bytes = 0;     ///< of its heap and other private memory; 0: as its parent
  std::uint64_t core_bytes = 0;     ///< of its core file; 0: none is written
};

/// A running child, as its launcher sees it.
class process {
 public:
  virtual ~process() = default;
  virtual pid_t pid() const = 0;
  /// To this child only, never to a process that got its number later.
  virtual void signal(int number) = 0;
};

/// A child process with its own watcher thread, which starts it, reads its output and reaps it.
///
/// The watcher forks, since a parent-death signal is bound to the *thread* that forked: the child
/// dies with the watcher, and the watcher lives as long as the child. Destroying this kills the
/// child and waits for its end, but not for one that a driver holds in the kernel: its watcher then
/// stays alone, and nobody is told of its end. Thread-safe.
class child_process final : public process {
 public:
  struct options {
    std::string program;
    std::vector<std::string>
        arguments;  ///< without argv[0]; "{secret-fd}" is replaced by the descriptor's number
    std::vector<std::uint8_t> secret;  ///< readable by the child once, from an inherited pipe
    resource_limits limits;
    int inherited = -1;  ///< a descriptor that the child keeps under its number; -1: none
    std::function<void(std::string line)> on_line;  ///< watcher thread
    std::function<void(exit_status)> on_exit;       ///< watcher thread, once, after the last line
  };

  /// Errors: `spawn_failed` with the system's reason; no process is left then.
  static expected<std::unique_ptr<process>> start(options o);
  ~child_process() override;
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;

  pid_t pid() const override;
  void signal(int number) override;
  /// As the destructor does, with another limit.
  void end_within(std::chrono::milliseconds limit);

 private:
  struct watched;
  child_process() = default;

  std::shared_ptr<watched> child_;
  std::thread watcher_;
};

}  // namespace troupe::launcher
