#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

/// Another program of a test, which is told lines and says lines. Killed when this ends.
class helper_process {
 public:
  helper_process(const std::string& program, const std::vector<std::string>& arguments);
  ~helper_process();
  helper_process(const helper_process&) = delete;
  helper_process& operator=(const helper_process&) = delete;

  void tell(const std::string& line);
  /// The next line; empty: none came in time, or the process has ended.
  std::string line(std::chrono::milliseconds at_most);
  /// Reads lines until one is `wanted`; false: it didn't come.
  bool until(const std::string& wanted, std::chrono::milliseconds at_most);
  /// SIGSTOP, in force when this returns.
  void stop();
  /// SIGCONT.
  void go_on();
  /// SIGKILL, and reaped when this returns.
  void kill();

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace troupe::test
