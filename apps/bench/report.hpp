#pragma once

#include "apps/bench/load.hpp"
#include "apps/bench/recorder.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

/// CPU time of one process over the measured window.
struct cpu_use {
  std::string name;
  int pid = 0;
  std::optional<nanoseconds> time;  ///< none: it ended meanwhile
};

/// All that a run came to.
struct run_report {
  /// What was asked for, as pairs of name and value, in order.
  std::vector<std::pair<std::string, std::string>> settings;
  load_summary load;
  const recorder* records = nullptr;
  std::vector<cpu_use> cpu;
  nanoseconds cpu_window{0};
  nanoseconds own_cpu{0};
};

/// A table for people.
std::string table_of(const run_report& report);

/// The same as JSON; times in milliseconds, CPU in microseconds.
std::string json_of(const run_report& report);

/// One answer, as one line; times in milliseconds, `at_ms` after the start and the others after
/// that.
std::string json_of_answer(const planned_request& request, const outcome& o);

}  // namespace troupe::bench
