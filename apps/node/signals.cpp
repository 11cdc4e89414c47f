#include "apps/node/signals.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace troupe::apps {

stop_signals::stop_signals() : stop_signals(::isatty(STDIN_FILENO) == 1) {}

stop_signals::stop_signals(bool at_terminal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  // Before main, libucs has made it the switch that turns on all of its log.
  if (at_terminal)
    sigaddset(&set, SIGHUP);
  else
    signal(SIGHUP, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a peer that went away is an error code, not an end
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signals_ < 0 || wake_ < 0)
    throw std::runtime_error("no descriptor for signals: too many open files");
}

stop_signals::~stop_signals() {
  ::close(signals_);
  ::close(wake_);
}

stop_signals::cause stop_signals::wait(std::optional<std::chrono::milliseconds> limit) {
  using clock = std::chrono::steady_clock;
  const auto until = limit ? std::optional{clock::now() + *limit} : std::nullopt;
  while (true) {
    int left = -1;
    if (until) {
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*until - clock::now()).count();
      left = static_cast<int>(std::max<std::int64_t>(ms, 0));
    }
    pollfd fds[2] = {{signals_, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (::poll(fds, 2, left) < 0 && errno != EINTR)
      throw std::runtime_error("cannot wait for signals");
    signalfd_siginfo info;
    if (fds[0].revents != 0 &&
        ::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      return cause::signal;
    std::uint64_t count = 0;
    if (fds[1].revents != 0 &&
        ::read(wake_, &count, sizeof count) == static_cast<ssize_t>(sizeof count))
      return cause::woken;
    // After a look, so that a limit of 0 asks whether there is something already.
    if (left == 0) return cause::timeout;
  }
}

void stop_signals::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] auto n = ::write(wake_, &one, sizeof one);
}

}  // namespace troupe::apps
