#pragma once

#include "apps/bench/answer.hpp"
#include "apps/bench/histogram.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace troupe::bench {

/// How often one kind of error came, and what it said the first time.
struct error_count {
  std::uint64_t count = 0;
  std::string first_message;
};

/// Sums up outcomes. Latencies are those of whole answers only; failures are counted by kind. Times
/// in nanoseconds. Not thread-safe.
class recorder {
 public:
  /// A request whose intended time is in the warm-up leaves no trace.
  explicit recorder(nanoseconds warmup) : warmup_(warmup) {}

  bool counts(nanoseconds intended) const { return intended >= warmup_; }

  /// `intended` counts from the start of the run, the times in `o` from `intended`.
  void record(nanoseconds intended, const outcome& o);

  std::uint64_t requests() const { return whole + failed; }
  /// From the first intended time to the last end of an answer, whole or not.
  nanoseconds window() const {
    return requests() == 0 ? nanoseconds{0} : last_end_ - first_intended_;
  }

  histogram first_token;     ///< intended time to first token
  histogram between_tokens;  ///< filled by the readers of streams
  histogram per_token;       ///< of one answer: (last token − first token) ÷ (tokens − 1)
  histogram whole_answer;    ///< intended time to end
  histogram send_delay;      ///< how late this program was
  std::map<std::string, error_count> errors;
  std::uint64_t whole = 0;
  std::uint64_t failed = 0;
  std::uint64_t completion_tokens = 0;  ///< of whole and broken answers
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;

 private:
  nanoseconds warmup_;
  nanoseconds first_intended_ = nanoseconds::max();
  nanoseconds last_end_{0};
};

}  // namespace troupe::bench
