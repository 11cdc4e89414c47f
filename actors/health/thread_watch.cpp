#include "actors/health/thread_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::health {

using namespace std::chrono_literals;

namespace {

std::int64_t ms(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

/// What is credible of a request's size.
constexpr std::uint64_t bytes_max = 1U << 30U;

bool has_work(const preparing_account& is) { return is.in_hand > 0 || is.waiting > 0; }

}  // namespace

tokeniser_limits tokeniser_limits_of(std::chrono::milliseconds hang_timeout,
                                     std::chrono::milliseconds account_gap_max) {
  tokeniser_limits l;
  l.still_max = std::max(2 * hang_timeout, 2 * account_gap_max);
  l.computing_max = std::max(l.computing_max, 12 * hang_timeout);
  l.computing_alone_max = 2 * l.computing_max;
  l.account_gap_max = account_gap_max;
  return l;
}

std::optional<std::string> tokeniser_watch::judge(const preparing_account& is, time_point now) {
  const auto since = std::min<std::chrono::nanoseconds>(now - judged_at_, limits_.account_gap_max);
  const bool moved = !known_ || is.sign != last_.sign || is.computed != last_.computed;
  // What came since then has had no time to be taken up.
  still_ = moved || !has_work(is) || !has_work(last_) ? 0ns : still_ + since;
  last_ = is;
  known_ = true;
  judged_at_ = now;

  if (still_ > limits_.still_max && is.in_hand == 0)
    return fmt::format("with {} prompts that no tokeniser thread has taken up for {} ms; {} ms "
                       "were allowed",
                       is.waiting, ms(still_), limits_.still_max.count());
  if (still_ > limits_.still_max)
    return fmt::format("with a prompt at a tokeniser thread that has neither got on nor computed "
                       "for {} ms, and {} behind it; {} ms were allowed",
                       ms(still_), is.waiting, limits_.still_max.count());
  const auto allowed = (is.waiting > 0 ? limits_.computing_max : limits_.computing_alone_max) +
                       std::chrono::duration_cast<std::chrono::milliseconds>(
                           limits_.computing_per_byte * std::min(is.bytes, bytes_max));
  if (is.in_hand > 0 && is.computed > allowed)
    return fmt::format("with a prompt of {} bytes at a tokeniser thread that has computed for {} "
                       "ms without getting on, and {} behind it; {} ms were allowed",
                       is.bytes, is.computed.count(), is.waiting, allowed.count());
  return std::nullopt;
}

std::optional<std::string> transport_watch::judge(const transport_account& is, time_point now) {
  const auto since = std::min<std::chrono::nanoseconds>(now - judged_at_, limits_.account_gap_max);
  still_ = is.rounds == 0 || is.rounds != last_ ? 0ns : still_ + since;
  last_ = is.rounds;
  judged_at_ = now;
  if (is.device_changed > 0)
    return fmt::format("with a KV transport that could not take or make {} connections, since the "
                       "host's address is on another network device than when it began",
                       is.device_changed);
  if (still_ <= limits_.still_max) return std::nullopt;
  return fmt::format("with a KV transport whose thread has not come round for {} ms; {} ms were "
                     "allowed",
                     ms(still_), limits_.still_max.count());
}

}  // namespace troupe::health
