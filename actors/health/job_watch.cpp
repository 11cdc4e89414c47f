#include "actors/health/job_watch.hpp"

#include <fmt/format.h>

namespace troupe::health {

std::optional<std::string> stall_of(const job_account& is, const stall_limits& limits) {
  if (is.turns <= limits.turns_max || is.still <= limits.still_max) return std::nullopt;
  return fmt::format(
      "its engine has computed nothing of it for {} ms, though {:.0f} turns were due to it",
      is.still.count(), is.turns);
}

}  // namespace troupe::health
