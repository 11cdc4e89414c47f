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
  suspected_ = suspected_ || (known_ && is.faults != last_.faults);
  last_ = is;
  last_at_ = now;
  known_ = true;
  quiet_ = got_on ? 0ns : quiet_ + since;
  if (got_on) {
    unanswered_ = 0;
    waiting_ = waiting_ && suspected_;
  }
  if (waiting_) {
    still_ = moved ? 0ns : still_ + since;
    out_ += since;
    if (still_ > limits_.timeout) {
      ++unanswered_;
      still_ = out_ = 0ns;
      waiting_ = unanswered_ < probes_unanswered_max;
      return waiting_;
    }
    // Its time is over at the worker, too: the answer was lost on its way.
    if (!suspected_ || out_ <= 2 * limits_.timeout) return false;
  }
  if (judge().what != verdict::healthy || (!suspected_ && quiet_ < limits_.after)) return false;
  waiting_ = true;
  still_ = out_ = 0ns;
  return true;
}

/// As it is when a request has just got on.
probe_policy probe_policy::open_way() const {
  probe_policy next{limits_};
  next.last_ = last_;
  next.last_at_ = last_at_;
  next.known_ = known_;
  return next;
}

void probe_policy::failed(const std::string& code) {
  const auto before = failed_;
  *this = open_way();
  suspected_ = true;
  failed_ = before + 1;
  failure_ = code;
}

judgement probe_policy::judge() const {
  if (failed_ >= probes_failed_max)
    return {verdict::broken,
            fmt::format("{} requests of one token in a row failed by its own fault, the last with "
                        "{}",
                        failed_, failure_)};
  if (unanswered_ >= probes_unanswered_max)
    return {verdict::hung,
            fmt::format("{} requests of one token in a row had no answer within {} ms each, and "
                        "nothing else moved",
                        unanswered_, limits_.timeout.count())};
  return {};
}

}  // namespace troupe::health
