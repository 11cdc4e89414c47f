#include "apps/node/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>
#include <string>

using namespace troupe::apps;
using namespace std::chrono_literals;

namespace {

/// A pipe of a few pages, and this test's logger until its end.
struct small_pipe {
  static constexpr int bytes = 4 * 4'096;
  small_pipe() {
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    REQUIRE(::fcntl(ends[1], F_SETPIPE_SZ, bytes) == bytes);
  }
  ~small_pipe() {
    spdlog::set_default_logger(before);
    for (int e : ends) ::close(e);
  }
  std::string read_all() {
    REQUIRE(::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    std::string all;
    std::array<char, 4096> some{};
    for (ssize_t n = 0; (n = ::read(ends[0], some.data(), some.size())) > 0;)
      all.append(some.data(), static_cast<std::size_t>(n));
    return all;
  }
  std::array<int, 2> ends{};
  std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
};

std::size_t lines_of(const std::string& text, const std::string& with) {
  std::size_t found = 0;
  for (auto at = text.find(with); at != std::string::npos; at = text.find(with, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a log that nobody reads holds nobody up, and says afterwards how much was lost") {
  small_pipe p;
  set_up_log("info", "%l %v", p.ends[1]);
  for (int i = 0; i < 1'000; ++i) spdlog::info("event=line number={}", i);  // would stand here
  const auto first = p.read_all();
  const auto came = lines_of(first, "event=line");
  CHECK(came > 10);
  CHECK(came < 1'000);
  CHECK(lines_of(first, "log_lines_lost") == 0);
  CHECK(first.back() == '\n');
  spdlog::info("event=line number=last");
  CHECK(p.read_all() == "warning event=log_lines_lost count=" + std::to_string(1'000 - came) +
                            " reason=\"nobody read the log\"\ninfo event=line number=last\n");
  spdlog::info("event=after");
  CHECK(p.read_all() == "info event=after\n");
}

TEST_CASE("a line that is too long for a pipe is cut, and ends") {
  small_pipe p;
  set_up_log("info", "%v", p.ends[1]);
  spdlog::info(std::string(10'000, 'x'));
  const auto line = p.read_all();
  CHECK(line.size() == write_bytes_max);
  CHECK(line.back() == '\n');
}

TEST_CASE("what is said to a person may be long, and waits for its reader for a while only") {
  small_pipe p;
  const std::string all(small_pipe::bytes, 'x');
  CHECK(write_patiently(p.ends[1], all, 0ms));
  CHECK_FALSE(write_patiently(p.ends[1], "more", 10ms));
  CHECK(p.read_all() == all);
  const auto file = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  CHECK(write_patiently(file, std::string(3 * write_bytes_max, 'x'), 0ms));
  ::close(file);
}
