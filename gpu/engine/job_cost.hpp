#pragma once

#include <chrono>
#include <cstdint>

namespace troupe::engine {

/// What a job has cost its engine, and what it got for it: enough to fit a cost model to.
struct job_cost {
  std::chrono::nanoseconds prefill{0};   ///< its share of passes that computed its prompt
  std::chrono::nanoseconds decode{0};    ///< of those that sampled for it
  std::chrono::nanoseconds transfer{0};  ///< the engine's time for its KV that left or came in
  std::uint32_t computed = 0;   ///< prompt tokens, computed here; those of a recompute, too
  double computed_context = 0;  ///< sum of what was before each of them
  std::uint32_t sampled = 0;
  double step_shares = 0;      ///< decode steps, each divided by the sequences in it
  double sampled_context = 0;  ///< sum of the KV length of each sampled token

  job_cost& operator+=(const job_cost& other) {
    prefill += other.prefill;
    decode += other.decode;
    transfer += other.transfer;
    computed += other.computed;
    computed_context += other.computed_context;
    sampled += other.sampled;
    step_shares += other.step_shares;
    sampled_context += other.sampled_context;
    return *this;
  }

  bool any() const {
    return (prefill + decode + transfer).count() > 0 || computed > 0 || sampled > 0;
  }

  friend bool operator==(const job_cost&, const job_cost&) = default;
};

}  // namespace troupe::engine
