#include "actors/health/probe_policy.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::health {

using namespace std::chrono_literals;

bool probe_policy::due(const engine_account& is, time_point now) {
  const auto since = known_ ? std::min<std::chrono::nanoseconds>(now - last_at_,
                                                                 limits_.account_gap_max)
                            : 0ns;
  const bool got_on = !known_ || is.tokens != last_.tokens || is.transferred != last_.transferred;
  // Steps without work are no progress; being inside one is the progress watch's matter.
  const bool moved = got_on || is.ticks != last_.ticks || is.busy != last_.busy ||
                     (is.stepping && last_.stepping && is.steps == last_.steps);
  last_ = is;
  last_at_ = now;
  known_ = true;
  quiet_ = got_on ? 0ns : quiet_ + since;
  if (got_on) waiting_ = false, unanswered_ = 0;
  if (waiting_) {
    still_ = moved ? 0ns : still_ + since;
    if (still_ <= limits_.timeout) return false;
    ++unanswered_;
    still_ = 0ns;
    waiting_ = unanswered_ < probes_unanswered_max;
    return waiting_;
  }
  if (unanswered_ >= probes_unanswered_max || quiet_ < limits_.after) return false;
  waiting_ = true;
  still_ = 0ns;
  return true;
}

std::string probe_policy::evidence() const {
  if (unanswered_ < probes_unanswered_max) return {};
  return fmt::format("{} requests of one token in a row had no answer within {} ms each, and "
                     "nothing else moved",
                     unanswered_, limits_.timeout.count());
}

}  // namespace troupe::health
