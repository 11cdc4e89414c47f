#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace troupe::health {

/// What an engine says of the job that it passes over most: others got what was due to it.
struct job_account {
  double turns = 0;                    ///< that were due to it since it last got on
  std::chrono::milliseconds still{0};  ///< since the first of them
};

struct stall_limits {
  /// More than any order of turns explains: a sequence that takes its turn by chance misses so many
  /// once in 10^14.
  double turns_max = 32;
  /// A quick engine's passes take no time.
  std::chrono::milliseconds still_max{5'000};
};

/// The evidence, when the engine has forgotten the job. Pure.
///
/// A job that waits for good reason is owed no turn, however long it waits, so that load alone
/// never makes one. Both limits have to be exceeded.
std::optional<std::string> stall_of(const job_account& is, const stall_limits& limits);

}  // namespace troupe::health
