#include "actors/launcher/child_process.hpp"

#include "messages/base/exit_codes.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <utility>

namespace troupe::launcher {

namespace {

error system_error(const std::string& what) {
  return {"spawn_failed", what + ": " + std::strerror(errno)};
}

int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

/// Splits a stream of bytes into lines, cuts long ones, and lets only so many through per second.
class line_filter {
 public:
  explicit line_filter(std::function<void(std::string)> sink) : sink_(std::move(sink)) {}

  void feed(const char* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      if (data[i] == '\n')
        flush();
      else if (line_.size() < child_line_bytes_max)
        line_ += data[i];
    }
  }

  void flush() {
    if (line_.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - second_ >= std::chrono::seconds{1}) {
      if (dropped_ > 0 && sink_)
        sink_("(" + std::to_string(dropped_) + " lines dropped: more than " +
              std::to_string(child_lines_per_second_max) + " per second)");
      second_ = now;
      count_ = dropped_ = 0;
    }
    if (++count_ <= child_lines_per_second_max) {
      if (sink_) sink_(std::move(line_));
    } else {
      ++dropped_;
    }
    line_.clear();
  }

 private:
  const std::function<void(std::string)> sink_;
  std::string line_;
  std::chrono::steady_clock::time_point second_{};
  std::uint32_t count_ = 0;
  std::uint32_t dropped_ = 0;
};

/// What a child that cannot be started as it should be ends with; another start cannot help.
[[noreturn]] void refuse(const char* what) {
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, what, std::strlen(what));
  ::_exit(exit_config);
}

struct prepared_limits {
  bool bound = false;
  cpu_set_t cpus;
  rlim_t data = 0;
  rlim_t core = 0;
};

prepared_limits prepare(const resource_limits& limits) {
  prepared_limits p;
  CPU_ZERO(&p.cpus);
  for (const auto cpu : limits.cpus) CPU_SET(cpu, &p.cpus);
  p.bound = !limits.cpus.empty();
  p.data = limits.data_bytes;
  p.core = limits.core_bytes;
  return p;
}

/// A hard limit can only be lowered: what is above it already stays there.
bool limit(int resource, rlim_t bytes) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return false;
  now.rlim_cur = now.rlim_max = std::min(bytes, now.rlim_max);
  return ::setrlimit(static_cast<__rlimit_resource_t>(resource), &now) == 0;
}

void apply(const prepared_limits& p) {
  if (p.bound && ::sched_setaffinity(0, sizeof p.cpus, &p.cpus) != 0)
    refuse("the engine cannot be bound to its pool's cpus: the machine lacks them\n");
  if (p.data > 0 && !limit(RLIMIT_DATA, p.data)) refuse("memory_limit cannot be set\n");
  if (!limit(RLIMIT_CORE, p.core)) refuse("core_limit cannot be set\n");
}

/// Between fork and exec only async-signal-safe calls are allowed: everything is prepared before.
[[noreturn]] void become(const char* program, char* const* argv, int output, int secret,
                         int inherited, const prepared_limits& limits, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl took effect
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  apply(limits);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  // Sockets of libraries that don't say O_CLOEXEC: an engine would keep the gateway's port, and
  // clients' connections, open after the gateway has closed them.
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(secret, F_SETFD, 0);
  if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(program, argv);
  ::_exit(126);
}

}  // namespace

/// What the watcher has of a child, and shares with its owner for as long as there is one.
struct child_process::watched {
  explicit watched(options x) : o(std::move(x)) {}
  ~watched() {
    if (pidfd >= 0) ::close(pidfd);
  }
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;

  void line(std::string text);
  void watch();
  /// From now on the owner hears nothing, and nothing of it is kept. With the mutex held.
  void leave_owner() {
    o.on_line = nullptr;
    o.on_exit = nullptr;
  }

  pid_t pid = -1;
  int pidfd = -1;
  int output = -1;
  std::mutex mutex;  ///< while the owner is told something
  std::condition_variable changed;
  bool over = false;
  options o;
};

std::string to_string(const exit_status& s) {
  if (s.signalled)
    return "killed by signal " + std::to_string(s.code) + " (" + ::strsignal(s.code) + ")";
  return "exited with " + std::to_string(s.code);
}

expected<std::unique_ptr<process>> child_process::start(options o) {
  std::unique_ptr<child_process> child{new child_process};
  auto shared = std::make_shared<watched>(std::move(o));
  child->child_ = shared;
  // Shared: the waiter may be gone before `set_value` has returned.
  auto promise = std::make_shared<std::promise<expected<void>>>();
  auto result = promise->get_future();
  child->watcher_ = std::thread{[shared, promise] {
    auto& started = *promise;
    auto& o = shared->o;
    int output[2], secret[2];
    if (::pipe2(output, O_CLOEXEC) != 0) return started.set_value(system_error("pipe"));
    if (::pipe2(secret, O_CLOEXEC) != 0) {
      started.set_value(system_error("pipe"));
      ::close(output[0]);
      ::close(output[1]);
      return;
    }
    for (auto& a : o.arguments)
      if (a == "{secret-fd}") a = std::to_string(secret[0]);
    std::vector<char*> argv{o.program.data()};
    for (auto& a : o.arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const auto limits = prepare(o.limits);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0)
      become(o.program.c_str(), argv.data(), output[1], secret[0], o.inherited, limits, parent);
    // Without a descriptor of the child neither a signal nor its end would be certain to be its
    // own.
    const int pidfd = pid < 0 ? -1 : pidfd_open(pid);
    const auto failure = system_error(pid < 0 ? "fork" : "pidfd_open");
    ::close(output[1]);
    ::close(secret[0]);
    if (pidfd < 0) {
      ::close(output[0]);
      ::close(secret[1]);
      if (pid > 0) {
        ::kill(pid, SIGKILL);  // not reaped yet, so the number is still its own
        ::waitpid(pid, nullptr, 0);
      }
      return started.set_value(failure);
    }
    // Far below a pipe's capacity, so that this never blocks.
    [[maybe_unused]] auto written = ::write(secret[1], o.secret.data(), o.secret.size());
    ::close(secret[1]);
    shared->pid = pid;
    shared->pidfd = pidfd;
    shared->output = output[0];
    started.set_value(ok);
    shared->watch();
  }};
  if (auto r = result.get(); !r) {
    child->watcher_.join();
    return std::move(r).error();
  }
  return std::unique_ptr<process>{std::move(child)};
}

child_process::~child_process() {
  if (!watcher_.joinable()) return;
  signal(SIGKILL);
  end_within(child_end_max);
}

void child_process::end_within(std::chrono::milliseconds limit) {
  if (watcher_.get_id() == std::this_thread::get_id()) return watcher_.detach();
  std::unique_lock lock{child_->mutex};
  if (child_->changed.wait_for(lock, limit, [this] { return child_->over; })) {
    lock.unlock();
    return watcher_.join();
  }
  child_->leave_owner();
  watcher_.detach();
}

pid_t child_process::pid() const { return child_->pid; }

void child_process::signal(int number) {
  if (child_->pidfd >= 0) ::syscall(SYS_pidfd_send_signal, child_->pidfd, number, nullptr, 0);
}

void child_process::watched::line(std::string text) {
  std::lock_guard lock{mutex};
  if (o.on_line) o.on_line(std::move(text));
}

void child_process::watched::watch() {
  line_filter lines{[this](std::string text) { line(std::move(text)); }};
  char buffer[8192];
  bool open = true;
  int status = 0;
  while (true) {
    pollfd fds[2] = {{pidfd, POLLIN, 0}, {open ? output : -1, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) break;
    if (fds[1].revents != 0) {
      const auto n = ::read(output, buffer, sizeof buffer);
      if (n > 0)
        lines.feed(buffer, static_cast<std::size_t>(n));
      else if (n == 0 || errno != EINTR)
        open = false;
      continue;  // the last words before the end
    }
    if (fds[0].revents != 0) break;
  }
  lines.flush();
  ::close(output);
  ::waitpid(pid, &status, 0);
  exit_status result;
  result.signalled = WIFSIGNALED(status);
  result.code = result.signalled ? WTERMSIG(status) : WEXITSTATUS(status);
  std::lock_guard lock{mutex};
  if (o.on_exit) o.on_exit(result);
  leave_owner();
  over = true;
  changed.notify_all();
}

}  // namespace troupe::launcher
