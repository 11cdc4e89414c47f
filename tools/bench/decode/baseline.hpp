#pragma once

#include <cstddef>
#include <string>

namespace troupe::bench {

struct decode_settings {
  std::string model;
  std::size_t batch = 8;
  std::size_t prompt_tokens = 128;
  std::size_t answer_tokens = 128;
  std::size_t cells = 8192;
  std::size_t step_tokens = 512;
  std::size_t threads = 2;
  std::string batched_bench;  ///< the program
};

/// Tokens per second of llama.cpp's own batched benchmark with these settings.
double batched_bench_rate(const decode_settings& s);

/// The same loop over llama.cpp's C interface, with `idle_tokens` cells held by a sequence that
/// takes no part: what its benchmark cannot do.
double direct_rate(const decode_settings& s, std::size_t idle_tokens);

}  // namespace troupe::bench
