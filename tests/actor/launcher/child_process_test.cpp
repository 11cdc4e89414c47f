// Real processes: /bin/sh stands for an engine.

#include "actors/launcher/child_process.hpp"
#include "messages/base/exit_codes.hpp"
#include "tests/support/few_descriptors.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>

using namespace troupe;
using namespace troupe::launcher;

namespace {

struct outcome {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::promise<exit_status> ended;

  std::vector<std::string> take() {
    std::lock_guard lock{mutex};
    return lines;
  }
};

expected<std::unique_ptr<process>> run_shell(outcome& o, const std::string& script,
                                             std::vector<std::uint8_t> secret = {},
                                             resource_limits limits = {}) {
  child_process::options x;
  x.limits = std::move(limits);
  x.program = "/bin/sh";
  x.arguments = {"-c", script, "sh", "{secret-fd}"};
  x.secret = std::move(secret);
  x.on_line = [&o](std::string line) {
    std::lock_guard lock{o.mutex};
    o.lines.push_back(std::move(line));
  };
  x.on_exit = [&o](exit_status s) { o.ended.set_value(s); };
  return child_process::start(std::move(x));
}

bool exists(pid_t pid) { return ::kill(pid, 0) == 0; }

}  // namespace

TEST_CASE("output comes by lines, then the exit code") {
  outcome o;
  auto p = run_shell(o, "echo one; echo two >&2; printf last; exit 5");
  REQUIRE(p);
  auto s = o.ended.get_future().get();
  CHECK_FALSE(s.signalled);
  CHECK(s.code == 5);
  CHECK(o.take() == std::vector<std::string>{"one", "two", "last"});
}

TEST_CASE("a signal is told from an exit code") {
  outcome o;
  auto p = run_shell(o, "kill -SEGV $$; sleep 60");
  REQUIRE(p);
  auto s = o.ended.get_future().get();
  CHECK(s.signalled);
  CHECK(s.code == SIGSEGV);
  CHECK(to_string(s).find("signal 11") != std::string::npos);
}

TEST_CASE("the secret arrives over the inherited descriptor and nowhere else") {
  outcome o;
  auto p = run_shell(
      o, "cat <&$1; echo; tr '\\0' ' ' < /proc/$$/cmdline; echo; tr '\\0' ' ' < /proc/$$/environ",
      {'s', '3', 'c', 'r', 'e', 't'});
  REQUIRE(p);
  (void)o.ended.get_future().get();
  auto lines = o.take();
  REQUIRE(lines.size() >= 2);
  CHECK(lines[0] == "s3cret");
  for (std::size_t i = 1; i < lines.size(); ++i)
    CHECK(lines[i].find("s3cret") == std::string::npos);
}

TEST_CASE("descriptors of this process do not get to the child, also those that would") {
  outcome o;
  const int fd = ::open("/dev/null", O_RDONLY);
  auto p = run_shell(o, "cat <&$1; [ -e /proc/$$/fd/" + std::to_string(fd) + " ] && echo open",
                     {'s', '\n'});
  ::close(fd);
  REQUIRE(p);
  (void)o.ended.get_future().get();
  CHECK(o.take() == std::vector<std::string>{"s"});
}

TEST_CASE("signals reach the child; destroying kills and reaps it") {
  outcome o;
  auto ended = o.ended.get_future();
  SECTION("SIGTERM") {
    auto p = run_shell(o, "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done");
    REQUIRE(p);
    while (o.take().empty()) ::usleep(1000);
    (*p)->signal(SIGTERM);
    CHECK(ended.get().code == 7);
  }
  SECTION("destruction") {
    auto p = run_shell(o, "sleep 60");
    REQUIRE(p);
    const auto pid = (*p)->pid();
    p->reset();
    CHECK(ended.get().signalled);
    CHECK_FALSE(exists(pid));
  }
}

TEST_CASE("a child that does not end holds nobody up: it is left to its watcher") {
  outcome o;
  auto ended = o.ended.get_future();
  auto p = run_shell(o, "exec sleep 0.5");
  REQUIRE(p);
  const auto pid = (*p)->pid();
  dynamic_cast<child_process&>(**p).end_within(std::chrono::milliseconds{10});
  p->reset();
  CHECK(exists(pid));
  for (int i = 0; i < 10'000 && exists(pid); ++i) ::usleep(1'000);
  CHECK_FALSE(exists(pid));  // reaped
  // Whoever started it may be gone.
  CHECK(ended.wait_for(std::chrono::milliseconds{50}) == std::future_status::timeout);
}

TEST_CASE("a program that cannot be run ends with a code, not with a hang") {
  outcome o;
  child_process::options x;
  x.program = "/nonexistent/program";
  x.on_exit = [&o](exit_status s) { o.ended.set_value(s); };
  auto p = child_process::start(std::move(x));
  REQUIRE(p);
  CHECK(o.ended.get_future().get().code == 126);
}

TEST_CASE("a child that cannot be watched is not left running, and the reason is told") {
  for (std::size_t left : {0U, 2U, 4U}) {
    outcome o;
    expected<std::unique_ptr<process>> p = error{};
    {
      const test::few_descriptors few{left};  // 4: both pipes, but no descriptor of the child
      p = run_shell(o, "sleep 60");
    }
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "spawn_failed");
    CHECK_THAT(p.error().message, Catch::Contains(left == 4 ? "pidfd_open: " : "pipe: "));
    // No child is left, running or dead.
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  }
}

TEST_CASE("a flood of output is cut to the limit, and says so") {
  outcome o;
  auto p = run_shell(
      o, "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; sleep 1.1; echo end");
  REQUIRE(p);
  (void)o.ended.get_future().get();
  auto lines = o.take();
  CHECK(lines.size() < 5000);
  CHECK(lines.back() == "end");
  CHECK(std::any_of(lines.begin(), lines.end(),
                    [](const auto& l) { return l.find("lines dropped") != std::string::npos; }));
}

TEST_CASE("an overlong line is cut, the next is whole") {
  outcome o;
  auto p = run_shell(o, "head -c 100000 /dev/zero | tr '\\0' x; echo; echo next");
  REQUIRE(p);
  (void)o.ended.get_future().get();
  auto lines = o.take();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].size() == child_line_bytes_max);
  CHECK(lines[1] == "next");
}

TEST_CASE("the child dies with its parent, even when that is killed") {
  // A middle process starts the child and is killed; the grandchild's pid comes over a pipe.
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const pid_t middle = ::fork();
  if (middle == 0) {
    outcome o;
    auto p = run_shell(o, "sleep 60");
    const pid_t pid = (*p)->pid();
    [[maybe_unused]] auto n = ::write(fds[1], &pid, sizeof pid);
    ::pause();
    ::_exit(0);
  }
  pid_t grandchild = 0;
  REQUIRE(::read(fds[0], &grandchild, sizeof grandchild) ==
          static_cast<ssize_t>(sizeof grandchild));
  REQUIRE(exists(grandchild));
  ::kill(middle, SIGKILL);
  ::waitpid(middle, nullptr, 0);
  // It is reaped by init, whenever that runs; a zombie counts as dead.
  auto gone = [&] {
    std::ifstream stat{"/proc/" + std::to_string(grandchild) + "/stat"};
    std::string text;
    std::getline(stat, text);
    return text.empty() || text.find(") Z") != std::string::npos;
  };
  for (int i = 0; i < 2000 && !gone(); ++i) ::usleep(1000);
  CHECK(gone());
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("a child may use what it is given, and no more") {
  cpu_set_t here;
  REQUIRE(::sched_getaffinity(0, sizeof here, &here) == 0);
  std::uint32_t cpu = 0;
  while (!CPU_ISSET(cpu, &here)) ++cpu;
  outcome o;
  auto p = run_shell(o,
                     "grep Cpus_allowed_list /proc/self/status; "
                     "grep -E '^Max (data size|core file size)' /proc/self/limits",
                     {}, {{cpu}, 256U << 20U, 4'096});
  REQUIRE(p);
  CHECK(o.ended.get_future().get().code == 0);
  const auto lines = o.take();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "Cpus_allowed_list:\t" + std::to_string(cpu));
  CHECK_THAT(lines[1], Catch::Contains("268435456"));
  // Up to what this process may give.
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  CHECK_THAT(lines[2], Catch::Contains(std::to_string(std::min<rlim_t>(core.rlim_max, 4'096))));
}

TEST_CASE("no core file is written unless it is asked for, and nothing else is limited") {
  outcome o;
  auto p = run_shell(o, "ulimit -c; ulimit -d; grep Cpus_allowed_list /proc/self/status");
  REQUIRE(p);
  o.ended.get_future().wait();
  const auto lines = o.take();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "0");
  CHECK(lines[1] == "unlimited");
  std::string mine;
  for (std::ifstream status{"/proc/self/status"}; std::getline(status, mine);)
    if (mine.starts_with("Cpus_allowed_list")) break;
  CHECK(lines[2] == mine);
}

TEST_CASE("a child that cannot be bound as it should be says so, and is not tried again") {
  outcome o;
  auto p = run_shell(o, "echo never", {}, {{1'023}, 0, 0});
  REQUIRE(p);
  const auto end = o.ended.get_future().get();
  CHECK(is_fatal_exit(end.code));
  REQUIRE(o.take().size() == 1);
  CHECK_THAT(o.take()[0], Catch::Contains("cpus"));
}

TEST_CASE("a child's data is bounded, what it maps from files is not") {
  // dd takes a buffer of bs from the heap.
  outcome o;
  auto p = run_shell(o, "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; echo $?", {},
                     {{}, 32U << 20U, 0});
  REQUIRE(p);
  o.ended.get_future().wait();
  CHECK(o.take() == std::vector<std::string>{"1"});
}
