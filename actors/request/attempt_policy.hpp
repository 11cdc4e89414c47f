#pragma once

#include "actors/request/submission.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::request {

/// Attempts at one prompt of which the client has heard nothing yet: the first and its repetitions.
/// One that is accepted goes on until its deadline; from so many on it is given longer pauses.
inline constexpr std::uint32_t attempts_max = 6;
/// Pause before an attempt is repeated when there was nobody to route to.
inline constexpr std::chrono::milliseconds route_retry_pause{250};
/// Until it is asked again for a worker where a prompt under suspicion can be alone.
inline constexpr std::chrono::milliseconds quarantine_retry_pause{100};
/// Of a refused route: the pause doubles with each attempt, so many times at most.
inline constexpr std::uint32_t route_retry_doublings_max = 4;

/// What ended an attempt at a prompt before its end.
enum class attempt_end : std::uint8_t {
  router_silent,
  route_refused,    ///< nobody can serve it now
  shard_refused,    ///< this shard knows nobody who can; another one is asked
  quarantine_full,  ///< it must be alone, and at each worker another such prompt is
  under_suspicion,  ///< it must be alone, but runs beside others
  worker_unknown,   ///< it was chosen, but this node knows that it is not there (any more)
  worker_gone,
  job_ended,      ///< `Rejected` or `JobFailed`
  stream_broken,  ///< tokens are missing, or are of a prompt that nobody has accepted
};

struct ended_attempt {
  attempt_end how = attempt_end::job_ended;
  std::uint32_t number = 1;   ///< attempts that have ended so, this one included
  bool client_reads = false;  ///< the client has been told that the prompt is accepted
  bool retryable = false;     ///< `job_ended`: what the worker says
  bool seen_here = false;     ///< `route_refused`: this node sees engines that could serve it
  std::string worker;         ///< who is gone or not known, failed or broke the stream; else empty
  /// That one failed this prompt before, and it has not got on since: no shard sees anybody else.
  bool avoided = false;
  std::string prefill;  ///< whom the attempt ran at; empty where there was nobody
  std::string decode;
  failure why;
  /// Since when each answer of a router has been that all engines were given up.
  std::chrono::milliseconds hopeless{0};
};

/// An accepted stream waits so long for engines of which a router says that all were given up: it
/// may be that one that still serves is out of its sight, or that somebody is mending them.
inline constexpr std::chrono::milliseconds hopeless_max{20'000};

struct attempt_decision {
  bool again = false;  ///< else the request fails with `ended_attempt::why`
  std::chrono::milliseconds pause{0};
  std::vector<std::string>
      exclude;  ///< workers that the next attempts avoid while others are ready
};

/// Whether something failed: only such ends are limited in number.
bool is_counted(attempt_end how);
/// Whether a worker has had the work, or should have: another attempt costs the node's budget.
bool is_repetition(attempt_end how);

/// What follows from the end of an attempt. Pure.
attempt_decision decide(const ended_attempt& e);

/// The code of an error of gpu/transfer. Both workers of a pair end with it, and neither says whose
/// fault it is.
bool is_transfer_failure(const std::string& code);

}  // namespace troupe::request
