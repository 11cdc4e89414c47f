#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::apps {

/// A pipe that is ready takes so many bytes at once. A line of the log that is longer is cut.
inline constexpr std::size_t write_bytes_max = 4'096;

/// Writes to a descriptor unless that would wait for longer than `patience`, each time: whoever
/// should read it may stand still (a stopped terminal, a pager, a stuck collector of logs), and no
/// actor is to stand still with it. False: not all of it was written.
bool write_patiently(int descriptor, std::string_view text, std::chrono::milliseconds patience);

/// spdlog's default logger of this process from now on. What `descriptor` does not take at once is
/// dropped, and counted: `event=log_lines_lost` tells how many as soon as it takes lines again.
/// Lines are written one by one, by the thread that has something to say.
void set_up_log(const std::string& level, const std::string& pattern, int descriptor = 2);

}  // namespace troupe::apps
