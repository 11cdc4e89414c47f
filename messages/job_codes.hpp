#pragma once

namespace troupe::msg {

/// Code of a `JobFailed` about a job that its requester renews and its worker does not have.
inline constexpr const char* job_lost = "job_lost";

}  // namespace troupe::msg
