#pragma once

#include "actors/request/submission.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::request {

/// Attempts at one prompt: the first and its repetitions after lost workers.
inline constexpr std::uint32_t attempts_max = 6;
/// Pause before an attempt is repeated when there was nobody to route to.
inline constexpr std::chrono::milliseconds route_retry_pause{250};
/// Of a refused route: the pause doubles with each attempt, so many times at most.
inline constexpr std::uint32_t route_retry_doublings_max = 4;

/// What ended an attempt at a prompt before its end.
enum class attempt_end : std::uint8_t {
  router_silent,
  route_refused,   ///< nobody can serve it now
  worker_unknown,  ///< it was chosen, but this node knows that it is not there (any more)
  worker_gone,
  job_ended,      ///< `Rejected` or `JobFailed`
  stream_broken,  ///< tokens are missing, or are of a prompt that nobody has accepted
};

struct ended_attempt {
  attempt_end how = attempt_end::job_ended;
  std::uint32_t number = 1;   ///< of the attempt, from 1
  bool client_reads = false;  ///< the client has been told that the prompt is accepted
  bool retryable = false;     ///< `job_ended`: what the worker says
  std::string worker;         ///< who is gone, failed or broke the stream; else empty
  std::string prefill;        ///< whom the attempt ran at; empty where there was nobody
  std::string decode;
  failure why;
};

struct attempt_decision {
  bool again = false;  ///< else the request fails with `ended_attempt::why`
  std::chrono::milliseconds pause{0};
  std::vector<std::string>
      exclude;  ///< workers that the next attempts avoid while others are ready
};

/// What follows from the end of an attempt. Pure.
attempt_decision decide(const ended_attempt& e);

/// The code of an error of gpu/transfer. Both workers of a pair end with it, and neither says whose
/// fault it is.
bool is_transfer_failure(const std::string& code);

}  // namespace troupe::request
