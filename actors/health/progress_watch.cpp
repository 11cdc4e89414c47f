#include "actors/health/progress_watch.hpp"
#include "messages/base/planted.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::health {

using namespace std::chrono_literals;

void progress_watch::measure(const engine_account& is, time_point now) {
  busy_ += is.busy - last_.busy;
  steps_ += is.steps - last_.steps;
  tokens_ += is.tokens - last_.tokens;
  if (slow_ && is.jobs == 0 && now - measured_at_ >= limits_.slow_memory) {
    slow_ = false;
    slow_in_row_ = limits_.slow_in_row - 1;
  }
  if (busy_ < limits_.measurement || steps_ == 0) return;
  const auto expected = usual_.predict(steps_, tokens_);
  const bool known = usual_.lessons() >= limits_.usual_after && expected.count() > 0;
  const auto ratio = known ? std::chrono::duration<double>(busy_) /
                                 std::chrono::duration<double>(expected)
                           : 1;
  slowest_ = std::max(ratio, 1 + (slowest_ - 1) * limits_.slowest_kept);
  if (ratio > limits_.slow_ratio) {
    ++slow_in_row_;
  } else {
    slow_in_row_ = 0;
    // What a slow engine takes meanwhile is not to become usual.
    if (!slow_ || ratio <= limits_.recovered_ratio) usual_.learn(steps_, tokens_, busy_);
  }
  recovered_in_row_ = ratio <= limits_.recovered_ratio ? recovered_in_row_ + 1 : 0;
  if (slow_in_row_ >= limits_.slow_in_row) slow_ = true;
  if (recovered_in_row_ >= limits_.slow_in_row) slow_ = false;
  last_measured_ = {busy_, expected, steps_, tokens_, ratio};
  measured_at_ = now;
  forget_measurement();
}

void progress_watch::forget_measurement() {
  busy_ = {};
  steps_ = tokens_ = 0;
  unwatched_ = false;
}

std::string progress_watch::slowness() const {
  const auto& m = last_measured_;
  return fmt::format("{} steps with {} tokens took {} ms, {:.1f} times the {} ms that are usual",
                     m.steps, m.tokens,
                     std::chrono::duration_cast<std::chrono::milliseconds>(m.busy).count(), m.ratio,
                     std::chrono::duration_cast<std::chrono::milliseconds>(m.usual).count());
}

void progress_watch::remember_stalls(std::uint64_t more, time_point now) {
  more = std::min<std::uint64_t>(more, limits_.stalls_max);
  stalls_.insert(stalls_.end(), static_cast<std::size_t>(more), now);
  while (stalls_.size() > limits_.stalls_max ||
         (!stalls_.empty() && now - stalls_.front() > limits_.stall_memory))
    stalls_.pop_front();
}

/// A step ended after so long without a sign: what it took is credible from now on. What it did not
/// compute (a step without work, between two accounts) is none of it.
void progress_watch::survived(std::chrono::nanoseconds still) {
  const auto usual = usual_.predict(1, last_.at_hand);
  if (usual_.lessons() >= limits_.usual_after && usual.count() > 0)
    slowest_ = std::max(slowest_, std::chrono::duration<double>(still) /
                                      std::chrono::duration<double>(usual));
}

std::chrono::milliseconds progress_watch::allowance(const engine_account& is) const {
  const bool known = usual_.lessons() >= limits_.usual_after;
  if (!known) return ticks_inside_ ? limits_.tick_gap_max : limits_.unmeasured_step_max;
  const auto slowest = usual_.predict(1, is.at_hand) * slowest_;
  // Between two ticks no more can happen than in the whole step.
  const auto explained = std::chrono::duration_cast<std::chrono::milliseconds>(
      ticks_inside_ ? slowest : slowest * limits_.slowness_allowed);
  return std::max(ticks_inside_ ? limits_.tick_gap_max : limits_.silent_step_max, explained);
}

judgement progress_watch::judge(const engine_account& is, time_point now) {
  const bool blind = known_ && planted::is(planted::bug::kill_progressing);
  const bool moved = !blind && (!known_ || is.steps != last_.steps || is.ticks != last_.ticks ||
                                is.tokens != last_.tokens);
  const auto since = std::min<std::chrono::nanoseconds>(now - judged_at_, limits_.account_gap_max);
  ticks_inside_ = ticks_inside_ || is.ticks_inside;
  if (known_) {
    // At the most one per pass from an engine that doesn't, and one may be of a step under way.
    if (is.ticks - last_.ticks > is.steps - last_.steps + 1) ticks_inside_ = true;
    unwatched_ = unwatched_ || now - judged_at_ > limits_.account_gap_max;
    if (!unwatched_) {
      measure(is, now);
      if (is.steps == last_.steps + 1 && last_.stepping)
        survived(std::min<std::chrono::nanoseconds>(still_ + since, is.busy - last_.busy));
    } else if (is.steps != last_.steps) {
      forget_measurement();  // with the pass in which the process may have stood still
    }
    remember_stalls(is.stalls - last_.stalls, now);
  }
  // A step that began since then has had no time to show anything.
  still_ = moved || !is.stepping || !last_.stepping ? 0ns : still_ + since;
  pausing_ = moved || is.stepping || last_.stepping || is.jobs == 0 || last_.jobs == 0
                 ? 0ns
                 : pausing_ + since;
  last_ = is;
  known_ = true;
  judged_at_ = now;

  const auto still = std::chrono::duration_cast<std::chrono::milliseconds>(still_);
  if (const auto allowed = allowance(is); is.stepping && still > allowed)
    return {
        verdict::hung,
        fmt::format("in step {} with {} tokens for {} ms without progress; {} ms were allowed{}",
                    is.steps + 1, is.at_hand, still.count(), allowed.count(),
                    ticks_inside_ ? ", since it ticks inside its steps"
                    : usual_.lessons() >= limits_.usual_after
                        ? " by the slowest that was measured here"
                        : ", since it has not been measured yet")};
  if (pausing_ > limits_.pause_max)
    return {verdict::hung,
            fmt::format("with {} jobs and no step for {} ms; {} ms were allowed", is.jobs,
                        std::chrono::duration_cast<std::chrono::milliseconds>(pausing_).count(),
                        limits_.pause_max.count())};
  if (slow_) return {verdict::slow, slowness()};
  if (stalls_.size() >= limits_.stalls_max)
    return {
        verdict::slow,
        fmt::format("within {} s it forgot {} of its jobs while others got on, and may again",
                    std::chrono::duration_cast<std::chrono::seconds>(limits_.stall_memory).count(),
                    stalls_.size())};
  return {};
}

}  // namespace troupe::health
