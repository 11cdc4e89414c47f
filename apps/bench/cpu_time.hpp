#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace troupe::bench {

using std::chrono::nanoseconds;

/// User and system time that a process and all its threads have used so far, without its children;
/// none when there is no such process. Counted in clock ticks (10 ms), so only differences over
/// seconds mean something.
std::optional<nanoseconds> cpu_time_of(pid_t pid);

/// The same from the text of /proc/PID/stat, with `ticks_per_second`.
std::optional<nanoseconds> parse_proc_stat(std::string_view text, long ticks_per_second);

/// Its short name, or its number where it has gone.
std::string name_of(pid_t pid);

/// Of this process.
nanoseconds own_cpu_time();

}  // namespace troupe::bench
