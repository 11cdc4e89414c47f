#pragma once

#include <chrono>
#include <cstdint>
#include <string>

// How a tenant's limit holds over several gateways. One of them owns the budget and is the only one
// to make model units (MU) out of time; it hands them out in slices, and nobody spends what it does
// not hold. What is stored anywhere counts against the burst, so that the whole never spends more
// than rate x T + burst in any time T. All is told in durations, measured by one clock each: the
// clocks of hosts may disagree.

namespace troupe::admission {

using time_point = std::chrono::steady_clock::time_point;
using milliseconds = std::chrono::milliseconds;
using seconds = std::chrono::duration<double>;

/// A holder speaks to its owner at least so often.
inline constexpr milliseconds renewal_interval{500};
/// An owner counts on a holder for so long after it has sent what the holder has heard.
inline constexpr milliseconds vote_time{3'000};
/// A holder keeps what it has, and follows no other owner, for so long after the last word. Longer
/// than `vote_time` by more than clocks drift apart in it: two owners never make MU at a time.
inline constexpr milliseconds lease_time{3'500};
/// An owner that was silent is not tried again for so long, if there is another.
inline constexpr milliseconds silence_remembered{10'000};
/// In floor mode no more than what comes in so long is stored.
inline constexpr seconds floor_stored{12.0};
/// A holder would like to hold what it uses in so long, so that not each request asks.
inline constexpr seconds prefetch_time{1.0};

struct budget_terms {
  double per_minute = 0;        ///< MU
  double burst = 0;             ///< MU
  double floor_per_minute = 0;  ///< MU that each gateway may spend while it hears of no owner
  std::uint32_t open_max = 0;   ///< requests at a time, over all gateways; 0: no limit
  std::size_t gateways = 1;
};

/// The first number of an incarnation's words: far from those of others, so that what one has said
/// is not taken for another's.
constexpr std::uint64_t first_sequence(std::uint64_t incarnation) {
  return 1 + (incarnation * 0x9e3779b97f4a7c15ULL >> 2U);
}

/// A holder's word to its owner.
struct holder_word {
  std::uint64_t incarnation = 0;   ///< of the holder; larger is newer
  std::uint64_t sequence = 0;      ///< comes back in the answer
  std::uint64_t echo = 0;          ///< the newest word of this owner that was heard; 0: none
  double held = 0;                 ///< MU, not spent
  double returned = 0;             ///< MU that are given back with this
  double need = 0;                 ///< MU that are missing for the next request; 0: nobody waits
  double prefetch = 0;             ///< MU that it would like on top
  std::uint32_t open = 0;          ///< requests that run
  std::uint32_t want_open = 0;     ///< that it would like to run
  std::uint32_t open_allowed = 0;  ///< that it may run, as it knows
};

/// The answer.
struct owner_word {
  std::uint64_t incarnation = 0;  ///< of the owner; larger is newer
  std::uint64_t sequence = 0;
  std::uint64_t answers = 0;  ///< the holder's sequence
  bool rules = false;         ///< enough holders follow this owner
  double grant = 0;           ///< MU
  milliseconds wait{0};       ///< until the need can be met
  bool scarce = false;        ///< others wait: what is not needed should come back
  double level = 0;           ///< MU that are left to hand out, less what others wait for
  std::uint32_t open_allowed = 0;
};

}  // namespace troupe::admission
