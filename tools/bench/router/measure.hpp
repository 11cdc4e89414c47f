#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::bench {

using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point then) {
  return std::chrono::duration<double>(clock::now() - then).count();
}

struct percentiles {
  double median_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
};
/// Of times in nanoseconds.
percentiles of(std::vector<std::uint32_t>& times_ns);

struct index_setup {
  std::size_t workers = 10'000;
  std::size_t blocks = 1'000'000;
  std::size_t chain_blocks = 54;  ///< of a prompt; the Mooncake conversation trace's median
  std::size_t shared_blocks = 8;  ///< of them, what all prompts of one workload begin with
  std::size_t subset = 64;
  std::uint64_t seed = 1;
};

void bench_index(const index_setup& setup);

}  // namespace troupe::bench
