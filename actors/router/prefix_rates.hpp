#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::router {

/// How often prompts have lately begun with the same blocks, by the last of them. Fixed memory: of
/// two beginnings that share a place the one that is asked for more often keeps it. A count fades
/// by a factor of e in `window`. Not thread-safe.
class prefix_rates {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds window{10};

  /// One more; how many there were in the window, this one included.
  double note(std::uint64_t block, time_point now) {
    auto& at = places_[(block * 0x9E37'79B9'7F4A'7C15ULL) >> (64 - place_bits)];
    const std::chrono::duration<double> since = now - at.when;
    const double faded = at.count * std::exp(-since / window);
    if (at.block == block)
      at.count = faded + 1;
    else if (faded < 1)
      at = {block, now, 1};
    else
      return 1;
    at.when = now;
    return at.count;
  }

 private:
  static constexpr unsigned place_bits = 12;
  struct place {
    std::uint64_t block = 0;
    time_point when{};
    double count = 0;
  };
  std::vector<place> places_ = std::vector<place>(std::size_t{1} << place_bits);
};

}  // namespace troupe::router
