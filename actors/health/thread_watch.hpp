#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::health {

/// What a worker says of its tokeniser threads.
struct preparing_account {
  std::uint32_t in_hand = 0;  ///< prompts
  std::uint32_t waiting = 0;  ///< for a thread
  /// Each sign of progress, a prompt's beginning and end among them, has the next number. This is
  /// the last one of the prompt in hand that has given none for longest; while none is in hand, the
  /// last of all.
  std::uint64_t sign = 0;
  /// By that prompt's thread since then: its own CPU time.
  std::chrono::milliseconds computed{0};
  std::uint64_t bytes = 0;  ///< of that prompt's request
};

struct tokeniser_limits {
  /// Neither a sign of progress nor computing, or nobody takes up what waits: no load explains it,
  /// since a thread that may run gets its share. Above what a thread waits for a page from a disk.
  std::chrono::milliseconds still_max{10'000};
  /// Computing without a sign of progress, while others wait. What takes longest are single calls
  /// of llama.cpp's, inside of which nobody can count. It is the thread's own time, so that neither
  /// a busy machine nor a stopped process counts, only how slow its core is.
  std::chrono::milliseconds computing_max{60'000};
  /// The same while nobody waits: there is no hurry.
  std::chrono::milliseconds computing_alone_max{120'000};
  /// On top, for a text without a special token inside, which is tokenised at once: many times what
  /// a busy machine took (0.2 µs for each pattern by which a tokeniser splits text).
  std::chrono::microseconds computing_per_byte{20};
  /// As in `watch_limits`.
  std::chrono::milliseconds account_gap_max{2'000};
};

/// Of a cluster: a longer `hang_timeout` says that its machines are slow; a shorter one does not
/// make them quicker. `account_gap_max` can never be what convicts.
tokeniser_limits tokeniser_limits_of(std::chrono::milliseconds hang_timeout,
                                     std::chrono::milliseconds account_gap_max);

/// Finds tokeniser threads that do not come back: rendering that loops, or stands. Pure: time is
/// passed in.
///
/// Nothing else would: prompts wait before the engine, which is idle then, and probes go past them.
/// Wall time proves only that a thread stands, and counts as far as accounts span it; computing is
/// judged by the thread's own clock.
class tokeniser_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit tokeniser_watch(tokeniser_limits limits = {}) : limits_(limits) {}

  /// An account, in the order in which they were given. The evidence, when one is stuck.
  std::optional<std::string> judge(const preparing_account& is, time_point now);

 private:
  tokeniser_limits limits_;
  preparing_account last_;
  time_point judged_at_{};
  bool known_ = false;
  std::chrono::nanoseconds still_{0};
};

/// What a worker says of its KV transport.
struct transport_account {
  std::uint64_t rounds = 0;  ///< of its thread; 0: it has none
  /// Connections that failed because the host's address is on another network device than when it
  /// began.
  std::uint64_t device_changed = 0;
};

struct transport_limits {
  /// Its thread comes round several times a second, also without anything to do.
  std::chrono::milliseconds still_max{5'000};
  /// As in `watch_limits`. Less than `still_max`, so that a process that was stopped and goes on is
  /// not blamed before its threads could run.
  std::chrono::milliseconds account_gap_max{2'000};
};

/// Finds a KV transport whose progress thread stands, or that cannot be connected with any more:
/// every hand-over with this worker would wait for its timeout, while the engine looks idle. Pure:
/// time is passed in.
class transport_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit transport_watch(transport_limits limits = {}) : limits_(limits) {}

  /// An account, in the order in which they were given. The evidence, when only another process can
  /// help.
  std::optional<std::string> judge(const transport_account& is, time_point now);

 private:
  transport_limits limits_;
  std::uint64_t last_ = 0;
  time_point judged_at_{};
  std::chrono::nanoseconds still_{0};
};

}  // namespace troupe::health
