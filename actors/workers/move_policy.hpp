#pragma once

#include <chrono>
#include <cstdint>

namespace troupe::workers {

/// A stream at a worker that drains.
struct stream_outlook {
  std::uint32_t sampled = 0;  ///< of its only choice, over all attempts
  std::uint32_t tokens_max = 0;
};

/// How the drain stands.
struct drain_outlook {
  std::chrono::milliseconds left{0};  ///< until whatever runs ends here
  bool move_all = false;              ///< the time to wait for ends is over
  float tokens_per_second = 0;        ///< of one stream, as measured lately; 0: not known
};

/// Of the time left, so much is counted on: rates change, and a move takes time, too.
inline constexpr double drain_time_used = 0.8;
/// Streams of one worker that move at the same time: they share the transport's buffers. Further
/// ones wait for their turn.
inline constexpr std::size_t moves_at_once_max = 8;
/// A stream for which there was no place is offered again after so long.
inline constexpr std::chrono::milliseconds move_again_after{1'000};

/// Whether a stream is to go on elsewhere: unless it is certain to end here in time. Most answers
/// end before their limit, but nobody knows which. Pure.
inline bool should_move(const stream_outlook& s, const drain_outlook& d) {
  if (d.move_all) return true;
  const auto most = s.tokens_max - (s.sampled < s.tokens_max ? s.sampled : s.tokens_max);
  const auto seconds = static_cast<double>(d.left.count()) / 1'000 * drain_time_used;
  return static_cast<double>(most) > static_cast<double>(d.tokens_per_second) * seconds;
}

}  // namespace troupe::workers
