#include "actors/router/guess_book.hpp"

#include <algorithm>
#include <bit>

namespace troupe::router {

namespace {

constexpr std::size_t prefetch_blocks = 8;

}  // namespace

guess_book::guess_book(std::size_t guesses_max)
    : table_(std::bit_ceil(std::max<std::size_t>(1, guesses_max / ways))) {}

void guess_book::note(std::uint32_t holder, std::span<const std::uint64_t> chain, std::size_t from,
                      time_point now) {
  const auto at = ms(now);
  const auto end = std::min(chain.size(), from + blocks_of_prompt_max);
  for (auto i = from; i < end; ++i) {
    if (i + prefetch_blocks < end) prefetch(holder, chain[i + prefetch_blocks]);
    const auto key = key_of(holder, chain[i]);
    auto& r = table_[bucket(key)];
    auto* oldest = &r.of[0];
    for (auto& g : r.of) {
      if (g.key == key) {
        oldest = &g;
        break;
      }
      if (g.at_ms < oldest->at_ms) oldest = &g;
    }
    *oldest = {key, at};
  }
}

double guess_book::beyond(std::uint32_t holder, std::span<const std::uint64_t> chain,
                          std::size_t from, time_point now) const {
  const auto at = ms(now);
  double sum = 0;
  const auto end = std::min(chain.size(), from + blocks_of_prompt_max);
  for (auto i = from; i < end; ++i) {
    const auto key = key_of(holder, chain[i]);
    double counts = 0;
    for (const auto& g : table_[bucket(key)].of)
      if (g.key == key && g.at_ms >= 0)
        counts = 1 - static_cast<double>(at - g.at_ms) / static_cast<double>(life.count());
    if (counts <= 0) break;
    sum += std::min(1.0, counts);
  }
  return sum;
}

}  // namespace troupe::router
