#pragma once

#include "actors/health/step_model.hpp"
#include "actors/health/thread_watch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace troupe::health {

/// What a worker says of its engine, as far as it tells life from death. Counters only grow within
/// a generation.
struct engine_account {
  std::uint64_t steps = 0;            ///< scheduler steps that ended, those without work too
  std::uint64_t ticks = 0;            ///< progress inside a forward pass
  std::uint64_t tokens = 0;           ///< computed, prompts' and answers'
  std::chrono::microseconds busy{0};  ///< spent in forward passes that ended
  bool stepping = false;              ///< a step is under way
  std::uint32_t at_hand = 0;          ///< tokens in that step's forward pass
  std::uint32_t jobs = 0;             ///< that the engine has, waiting ones too
  std::uint64_t transferred = 0;      ///< bytes of KV, in and out
  std::uint64_t faults = 0;           ///< jobs that it failed itself
  std::uint64_t stalls = 0;           ///< jobs that it forgot, and that were ended for that
  preparing_account preparing = {};
  transport_account transport = {};
  bool ticks_inside = false;  ///< its engine says that it ticks inside every pass
};

struct watch_limits {
  /// An engine that ticks inside its steps shows life more often than this; where a whole step
  /// takes longer, so often.
  std::chrono::milliseconds tick_gap_max{5'000};
  /// Of an engine that doesn't tick, and has not been measured yet: the longest step.
  std::chrono::milliseconds unmeasured_step_max{60'000};
  /// One that doesn't tick but has been measured may take so long in any case,
  std::chrono::milliseconds silent_step_max{7'000};
  /// and so many times what the slowest measurement makes of its tokens.
  double slowness_allowed = 8;
  /// What that one was beyond the usual counts for so much less with each later one: half after
  /// some minutes of computing.
  double slowest_kept = 0.99;
  /// Between two steps an engine with jobs looks for work at least once a second.
  std::chrono::milliseconds pause_max{5'000};
  /// Over a link that stands a worker says something at least so often. More than its node needs to
  /// see that the link does not stand.
  std::chrono::milliseconds silence_max{10'000};
  /// What two accounts that lie further apart say of the time between them: no more than so much.
  /// The whole process may have stood still, which is the link's matter.
  std::chrono::milliseconds account_gap_max{2'000};
  /// Each measurement spans at least so much computing.
  std::chrono::milliseconds measurement{2'000};
  /// So many measurements make what is usual.
  std::uint32_t usual_after = 16;
  /// Slow is an engine whose steps take so many times what is usual, so often in a row.
  double slow_ratio = 5;
  std::uint32_t slow_in_row = 4;
  /// And it is slow until they take at most so many times that, as often in a row,
  double recovered_ratio = 2.5;
  /// or until it has had nothing to compute for so long, since others get the work: then it is
  /// tried again, and one slow measurement is enough.
  std::chrono::milliseconds slow_memory{60'000};
  /// An engine that has forgotten so many jobs within so long is slow, too.
  std::size_t stalls_max = 3;
  std::chrono::milliseconds stall_memory{300'000};
};

enum class verdict : std::uint8_t {
  healthy,
  slow,    ///< works, far below its usual rate or not on all that it has: nothing new for it,
           ///< nothing taken from it
  hung,    ///< no progress in a step, longer than the work at hand explains, or no step at all
  broken,  ///< what it computes is of no use
};

struct judgement {
  verdict what = verdict::healthy;
  std::string evidence;  ///< for people and the log; empty while healthy
};

/// Judges one incarnation of an engine by its progress. Pure: time is passed in.
///
/// An engine that makes progress is never hung, however slow: only a step in which neither ticks
/// nor steps move counts, and it may take as long as its tokens took at the slowest that was
/// measured here lately, times `slowness_allowed`. One that waits (for work, for KV that is on its
/// way) is not in a step, but its thread still looks for work: with jobs and without steps it is
/// stuck. One that forgets jobs again and again gets on with others: it is slow, never hung. Time
/// without accounts proves nothing, neither a hang nor that steps may take so long: that is the
/// link's matter.
class progress_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit progress_watch(watch_limits limits = {}) : limits_(limits) {}

  /// An account, in the order in which they were given.
  judgement judge(const engine_account& now_is, time_point now);

 private:
  void measure(const engine_account& is, time_point now);
  void forget_measurement();
  std::string slowness() const;
  void remember_stalls(std::uint64_t more, time_point now);
  void survived(std::chrono::nanoseconds still);
  std::chrono::milliseconds allowance(const engine_account& is) const;

  watch_limits limits_;
  engine_account last_;
  time_point judged_at_{};
  std::chrono::nanoseconds still_{0};    ///< in a step, since the last progress
  std::chrono::nanoseconds pausing_{0};  ///< between steps, since the last one, with jobs
  bool known_ = false;
  bool ticks_inside_ = false;  ///< by its own word, or since there were more ticks than steps

  // The measurement under way.
  std::chrono::microseconds busy_{0};
  std::uint64_t steps_ = 0;
  std::uint64_t tokens_ = 0;
  bool unwatched_ = false;  ///< there was a gap since, and its pass has not ended

  step_model usual_;    ///< what is slow is not learnt
  double slowest_ = 1;  ///< the largest ratio of a measurement to what was usual, see slowest_kept
  struct {
    std::chrono::microseconds busy{0};
    std::chrono::nanoseconds usual{0};
    std::uint64_t steps = 0;
    std::uint64_t tokens = 0;
    double ratio = 1;
  } last_measured_;
  time_point measured_at_{};
  bool slow_ = false;
  std::uint32_t slow_in_row_ = 0;
  std::uint32_t recovered_in_row_ = 0;
  std::deque<time_point> stalls_;  ///< the last ones, `stalls_max` at most
};

}  // namespace troupe::health
