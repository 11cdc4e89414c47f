#include "tests/unit/gpu/transfer/peer_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

extern char** environ;

namespace troupe::transfer::testing {

std::string hex(const std::vector<std::byte>& bytes) {
  std::string out;
  char two[3];
  for (auto b : bytes) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    out += two;
  }
  return out;
}

peer_process::peer_process() {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const char* program = TROUPE_TRANSFER_PEER;
  char* const arguments[] = {const_cast<char*>(program), nullptr};
  if (::posix_spawn(&pid_, program, &actions, nullptr, arguments, environ) != 0)
    throw std::runtime_error("transfer_peer did not start");
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  const auto first = line(std::chrono::seconds(20));
  if (first.rfind("address ", 0) != 0)
    throw std::runtime_error("transfer_peer said '" + first + "'");
  for (std::size_t i = 8; i + 1 < first.size(); i += 2)
    address_.push_back(static_cast<std::byte>(std::stoi(first.substr(i, 2), nullptr, 16)));
}

peer_process::~peer_process() {
  kill();
  ::close(to_);
  ::close(from_);
}

void peer_process::tell(const std::string& text) {
  const auto whole = text + "\n";
  if (::write(to_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size()))
    throw std::runtime_error("transfer_peer doesn't listen");
}

std::string peer_process::line(std::chrono::milliseconds at_most) {
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

bool peer_process::until(const std::string& wanted, std::chrono::milliseconds at_most) {
  for (;;) {
    const auto next = line(at_most);
    if (next == wanted) return true;
    if (next.empty()) return false;
  }
}

void peer_process::stop() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);  // until it really stands still
}

void peer_process::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace troupe::transfer::testing
