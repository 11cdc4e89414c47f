#pragma once

#include "messages/base/expected.hpp"

#include <chrono>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace troupe::bench {

using std::chrono::nanoseconds;

/// A longer trace is cut off there.
inline constexpr std::size_t trace_entries_max = 10'000'000;

inline constexpr std::size_t trace_line_bytes_max = 16U << 20U;

/// One request of a recorded workload.
struct trace_entry {
  nanoseconds at{0};  ///< after the first request of the trace
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  /// Of the prompt's blocks of `trace_block_tokens`; requests that share leading ids share that
  /// much of their prompts.
  std::vector<std::uint64_t> blocks;
};

inline constexpr std::uint32_t trace_block_tokens = 512;

/// Reads either form, in the order of time: CSV with the columns
/// TIMESTAMP,ContextTokens,GeneratedTokens (date and time, or seconds), or JSON lines with
/// timestamp (ms), input_length, output_length and hash_ids. Errors: `trace_invalid`, with the
/// line.
expected<std::vector<trace_entry>> read_trace(std::istream& in);

/// The same from a file. Errors: also `trace_unreadable`.
expected<std::vector<trace_entry>> load_trace(const std::string& path);

}  // namespace troupe::bench
