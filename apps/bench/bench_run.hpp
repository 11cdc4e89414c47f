#pragma once

#include "apps/bench/target_settings.hpp"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace troupe::bench {

/// The options of `troupe bench run`, as they were given. Times in seconds.
struct bench_settings : target_settings {
  bool no_stream = false;
  bool no_usage = false;
  bool ignore_eos = false;
  std::optional<double> temperature;
  std::string extra_body;

  double rate = 0;
  std::uint32_t connections = 0;
  std::string trace;
  double speedup = 1;
  double duration_s = 0;
  std::uint64_t requests = 0;
  double warmup_s = 0;
  std::uint64_t seed = 1;

  std::string prompt_tokens;  ///< `N` or `MIN:MAX`
  std::string prompt_bytes;
  std::string max_tokens = "64";
  double bytes_per_token = 4;
  std::uint32_t shared_prefix_bytes = 0;
  std::uint64_t prefixes = 1;

  double request_timeout_s = 600;
  double drain_timeout_s = 60;
  std::uint32_t connections_max = 4'096;

  std::vector<int> cpu_of;
  std::string json;
  std::string answers;  ///< file for one line per answer
  bool strict = false;
  bool progress = false;
};

/// Runs the load and reports on `out`; what goes wrong before it, and progress, on `err`. Returns
/// the exit code of the command.
int run_bench(const bench_settings& settings, std::ostream& out, std::ostream& err);

}  // namespace troupe::bench
