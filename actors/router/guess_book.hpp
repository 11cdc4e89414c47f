#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::router {

/// What workers will have cached soon: prompts that were just routed to them, until their own
/// events tell, or nothing comes of it. A guess counts in full at first and less and less until it
/// is forgotten after `life`. Fixed memory: 16 bytes a guess; where there is no room the oldest of
/// four gives way. Not thread-safe.
class guess_book {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds life{10'000};
  /// Blocks of one prompt that are guessed: 256 KiB of it.
  static constexpr std::size_t blocks_of_prompt_max = 512;

  /// `guesses_max`: rounded up to a power of two.
  explicit guess_book(std::size_t guesses_max = 131'072);

  /// `chain` from the block `from` on will be at `holder`.
  void note(std::uint32_t holder, std::span<const std::uint64_t> chain, std::size_t from,
            time_point now);
  /// Blocks from `from` on without a gap, each counted by how young its guess is.
  double beyond(std::uint32_t holder, std::span<const std::uint64_t> chain, std::size_t from,
                time_point now) const;
  /// Of the first place that `beyond` looks at: a fetch from memory that others can overlap.
  void prefetch(std::uint32_t holder, std::uint64_t block) const {
    __builtin_prefetch(&table_[bucket(key_of(holder, block))]);
  }

 private:
  static constexpr std::size_t ways = 4;
  struct guess {
    std::uint64_t key = 0;
    std::int64_t at_ms = -1;  ///< negative: never
  };
  struct alignas(64) row {
    guess of[ways];
  };

  static std::uint64_t key_of(std::uint32_t holder, std::uint64_t block) {
    return (block ^ holder * 0xD6E8'FEB8'6659'FD93ULL) * 0x9E37'79B9'7F4A'7C15ULL;
  }
  std::size_t bucket(std::uint64_t key) const { return (key >> 32U) & (table_.size() - 1); }
  static std::int64_t ms(time_point t) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count();
  }

  std::vector<row> table_;
};

}  // namespace troupe::router
