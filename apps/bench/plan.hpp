#pragma once

#include "apps/bench/trace.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace troupe::bench {

/// A length that is drawn for each request, evenly from [min, max].
struct length_range {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};

/// One request to send, and when.
struct planned_request {
  std::uint64_t index = 0;
  nanoseconds at{0};  ///< after the start; latency counts from here, whenever it is really sent
  std::uint32_t prompt_bytes = 0;
  std::uint32_t max_tokens = 0;
  std::uint64_t prefix = 0;           ///< which of the shared prefixes
  std::vector<std::uint64_t> blocks;  ///< of a trace; then they make up the prompt
};

struct plan_options {
  std::uint64_t seed = 1;
  double rate_per_s = 0;  ///< Poisson; 0: no schedule, every request is due at once (closed loop)
  std::vector<trace_entry> trace;       ///< in place of a rate, where it isn't empty
  double speedup = 1;                   ///< of the trace
  length_range prompt_bytes{256, 256};  ///< not for traces
  length_range max_tokens{64, 64};      ///< for traces: a cap
  double bytes_per_token = 4;           ///< turns a trace's tokens into bytes
  std::uint64_t prefixes = 1;           ///< shared prefixes to draw from
  std::uint64_t requests_max = std::numeric_limits<std::uint64_t>::max();
  nanoseconds duration = nanoseconds::max();  ///< requests due later are not planned
};

/// The sequence of requests; the same options bring the same sequence. Pure but for its own
/// generator; not thread-safe.
class plan {
 public:
  explicit plan(plan_options options);

  /// The next request in the order of time; none at the end.
  std::optional<planned_request> next();

 private:
  double uniform();  ///< from [0, 1)
  std::uint32_t draw(length_range range);
  std::optional<nanoseconds> next_time();

  plan_options options_;
  std::mt19937_64 random_;
  std::uint64_t index_ = 0;
  double poisson_s_ = 0;
};

}  // namespace troupe::bench
