#pragma once

#include <string_view>

namespace troupe::msg {

/// Code of a `JobFailed` about a job that its requester renews and its worker does not have.
inline constexpr const char* job_lost = "job_lost";

/// Code of a `JobFailed` about a job that its engine passed over again and again.
inline constexpr const char* job_stalled = "job_stalled";

/// Code of a `JobFailed` about a job whose prompt a tokeniser thread has, or has not taken up, that
/// does not come back.
inline constexpr const char* tokenisers_stuck = "tokenisers_stuck";

/// Code of a `Rejected` about a probe: another one is in the engine, without an answer so far.
inline constexpr const char* probe_pending = "probe_pending";

/// Whether a job that ended with this code was failed by what computes: a pass that came to no end,
/// or to no numbers. Where KV came from elsewhere it may be the fault of whoever computed that.
constexpr bool is_engine_fault(std::string_view code) {
  return code == "garbage_output" || code == "engine_failed";
}

}  // namespace troupe::msg
