#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
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

struct setup {
  std::size_t workers = 10'000;
  std::size_t blocks = 1'000'000;
  std::size_t chain_blocks = 54;  ///< of a prompt; the Mooncake conversation trace's median
  std::size_t shared_blocks = 8;  ///< of them, what all prompts of one workload begin with
  std::size_t subset = 64;
  std::uint64_t seed = 1;
};

/// A prompt of one of 100 workloads: the beginning of its workload, and its own.
std::vector<std::uint64_t> chain_of(std::uint64_t prompt, const setup& s);

void bench_index(const setup& s);
/// `apart`: prefill and decode in different workers, half of them each.
void bench_decisions(const setup& s, bool apart);

struct trace_setup {
  std::string path;  ///< of the Mooncake conversation trace
  std::size_t workers = 8;
  std::size_t shards = 4;
  double kv_share = 0.1;  ///< of all different blocks of the trace, all workers together
  double prefill_tokens_per_second = 6'000;
  double others_weight = -1;  ///< negative: the policy's own
  std::uint64_t seed = 1;
};

/// Prints hit rates and balance of a sharded router, a global one, least load and consistent
/// hashing, and whether what is promised of them holds. False: it doesn't, or the trace cannot be
/// read.
bool bench_trace(const trace_setup& s);

}  // namespace troupe::bench
