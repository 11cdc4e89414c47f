#include "apps/bench/cpu_time.hpp"

#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>

namespace troupe::bench {

namespace {

std::string read_all(const std::string& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

std::optional<nanoseconds> parse_proc_stat(std::string_view text, long ticks_per_second) {
  // The name in the second field may hold anything, closing parentheses included; the last one ends
  // it.
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos || ticks_per_second <= 0) return std::nullopt;
  text.remove_prefix(name_end + 1);
  constexpr int utime_field = 14;
  constexpr int stime_field = 15;
  std::uint64_t ticks = 0;
  for (int field = 3; field <= stime_field; ++field) {
    const auto start = text.find_first_not_of(' ');
    if (start == std::string_view::npos) return std::nullopt;
    text.remove_prefix(start);
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    if (field < utime_field) continue;
    std::uint64_t value = 0;
    if (std::from_chars(word.data(), word.data() + word.size(), value).ec != std::errc{})
      return std::nullopt;
    ticks += value;
  }
  return nanoseconds{static_cast<std::int64_t>(ticks) * (1'000'000'000 / ticks_per_second)};
}

std::optional<nanoseconds> cpu_time_of(pid_t pid) {
  return parse_proc_stat(read_all(fmt::format("/proc/{}/stat", pid)), ::sysconf(_SC_CLK_TCK));
}

std::string name_of(pid_t pid) {
  auto name = read_all(fmt::format("/proc/{}/comm", pid));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name.empty() ? fmt::format("{}", pid) : name;
}

nanoseconds own_cpu_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return std::chrono::seconds{t.tv_sec} + std::chrono::microseconds{t.tv_usec};
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

}  // namespace troupe::bench
