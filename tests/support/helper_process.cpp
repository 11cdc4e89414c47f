#include "tests/support/helper_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

extern char** environ;

namespace troupe::test {

helper_process::helper_process(const std::string& program,
                               const std::vector<std::string>& arguments) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const auto& x : arguments) words.push_back(const_cast<char*>(x.c_str()));
  words.push_back(nullptr);
  const int failure = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, words.data(),
                                    environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (failure != 0) throw std::runtime_error(program + " did not start");
}

helper_process::~helper_process() {
  kill();
  ::close(to_);
  ::close(from_);
}

void helper_process::tell(const std::string& text) {
  const auto whole = text + "\n";
  if (::write(to_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size()))
    throw std::runtime_error("a helper doesn't listen");
}

std::string helper_process::line(std::chrono::milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    if (auto end = buffer_.find('\n'); end != std::string::npos) {
      auto found = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return found;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          until - std::chrono::steady_clock::now())
                          .count();
    pollfd watched{from_, POLLIN, 0};
    if (left <= 0 || ::poll(&watched, 1, static_cast<int>(left)) <= 0) return {};
    char bytes[4096];
    const auto n = ::read(from_, bytes, sizeof bytes);
    if (n <= 0) return {};
    buffer_.append(bytes, static_cast<std::size_t>(n));
  }
}

bool helper_process::until(const std::string& wanted, std::chrono::milliseconds at_most) {
  for (;;) {
    const auto next = line(at_most);
    if (next == wanted) return true;
    if (next.empty()) return false;
  }
}

void helper_process::stop() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);  // until it really stands still
}

void helper_process::go_on() { ::kill(pid_, SIGCONT); }

void helper_process::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace troupe::test
