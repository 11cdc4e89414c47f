#pragma once

#include "actors/health/progress_watch.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe::health {

/// Probes in a row that must go unanswered before an engine is called hung: one may be lost with a
/// link.
inline constexpr std::uint32_t probes_unanswered_max = 2;

/// Probes in a row that the engine itself must fail before it is called broken.
inline constexpr std::uint32_t probes_failed_max = 3;

struct probe_limits {
  /// Without progress of a request for so long an engine is probed,
  std::chrono::milliseconds after{10'000};
  /// and a probe is waited for so long, not counting time in which anything moves.
  std::chrono::milliseconds timeout{5'000};
  /// As in `watch_limits`.
  std::chrono::milliseconds account_gap_max{2'000};
};

/// When one incarnation of an engine is probed, and what an unanswered probe proves. Pure: time is
/// passed in.
///
/// It complements `progress_watch`, which looks into steps: a probe goes the way of a request, and
/// so finds a worker that takes nothing in, an engine that never gets to it, an answer that never
/// leaves. What is inside a step is left to the watch, however long it takes. When jobs are failed
/// by the engine itself it is probed, too, whatever else gets on: KV that came from elsewhere may
/// be why, but a probe is computed there alone.
class probe_policy {
 public:
  using time_point = progress_watch::time_point;

  explicit probe_policy(probe_limits limits = {}) : limits_(limits) {}

  /// An account, in the order in which they were given. True: send a probe now; an earlier one is
  /// given up.
  [[nodiscard]] bool due(const engine_account& is, time_point now);
  /// The probe has come back, with a token or refused: the way is open.
  void answered() { *this = open_way(); }
  /// It has come back, and the engine itself has failed it, with this code.
  void failed(const std::string& code);
  /// Hung or broken, when the probes prove it; else healthy.
  judgement judge() const;
  std::uint32_t unanswered() const { return unanswered_; }

 private:
  probe_policy open_way() const;

  probe_limits limits_;
  engine_account last_;
  time_point last_at_{};
  bool known_ = false;
  bool waiting_ = false;               ///< for a probe
  bool suspected_ = false;             ///< to be broken
  std::uint32_t failed_ = 0;           ///< in a row
  std::string failure_;                ///< of the last one
  std::uint32_t unanswered_ = 0;       ///< in a row
  std::chrono::nanoseconds quiet_{0};  ///< since a request got on, or a probe was answered
  std::chrono::nanoseconds still_{0};  ///< since the probe was sent, or anything moved
  std::chrono::nanoseconds out_{0};    ///< since the probe was sent
};

}  // namespace troupe::health
