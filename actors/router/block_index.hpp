#pragma once

#include "actors/router/holder_sets.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::router {

/// Of an index.
struct block_index_limits {
  /// Different blocks. At the limit a new one takes the place of one that nobody has added again or
  /// walked over since a hand last passed it (second chance).
  std::size_t blocks_max = 4'000'000;
  /// Bytes for blocks that more than two have. At the limit further holders of such blocks are not
  /// noted.
  std::size_t shared_bytes_max = std::size_t{256} << 20U;
};

/// Which blocks of prompts (by the byte chain's hash) are held by whom. At its limits it knows of
/// less than there is, never of more. Memory: 16 bytes a place, 1.33 to 2.67 places a block, and
/// for blocks of more than two holders 4 to 11 bytes a holder; while the table doubles, half of it
/// more.
///
/// A holder is one life of a worker: one that begins anew gets another number, and all that the old
/// one held is gone at once for every question; its places are swept up by the updates that follow.
/// Not thread-safe.
class block_index {
 public:
  using holder = holder_sets::holder;

  explicit block_index(block_index_limits limits = {});

  /// Somebody new, who holds nothing. The number is theirs until `leave`.
  holder join();
  void leave(holder h);

  void add(holder h, std::span<const std::uint64_t> blocks);
  void drop(holder h, std::span<const std::uint64_t> blocks);

  /// For each of `who` (no two alike) how many blocks it holds from the beginning of the chain on
  /// without a gap, to `out` at the same place. One walk of the chain for all of them: it ends
  /// where the last one's knowledge does, and a block costs the smaller of those who hold it and
  /// those still asked for.
  void longest(std::span<const std::uint64_t> chain, std::span<const holder> who,
               std::span<std::uint32_t> out);

  /// Different blocks, those of holders that left and are not swept up yet included.
  std::size_t blocks() const { return size_; }
  std::size_t held(holder h) const { return held_[h]; }
  /// Blocks that were forgotten for others, at the limit.
  std::uint64_t forgotten() const { return forgotten_; }
  /// Holders that were not noted, at the limit.
  std::uint64_t unnoted() const { return unnoted_; }
  std::size_t bytes() const;

 private:
  struct slot {
    std::uint64_t hash = 0;
    holder_sets::cell who;
  };
  struct seat {
    std::uint32_t question = 0;
    std::uint32_t place = 0;
  };
  enum class life : std::uint8_t { free, alive, left };

  static std::uint64_t spread(std::uint64_t hash) { return hash * 0x9E37'79B9'7F4A'7C15ULL; }
  std::size_t home(std::uint64_t hash) const { return spread(hash) >> shift_; }
  std::size_t find(std::uint64_t hash) const;
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&table_[home(hash)]); }
  void add_one(holder h, std::uint64_t hash);
  void grow();
  void erase(std::size_t i);
  void forget_one();
  void purge(holder_sets::cell& c);
  void sweep();
  void end_sweep();

  block_index_limits limits_;
  std::vector<slot> table_;
  unsigned shift_;
  std::size_t size_ = 0;
  std::size_t hand_ = 0;
  holder_sets sets_;
  std::vector<std::uint32_t> held_;
  std::vector<life> lives_;
  std::vector<holder> unused_;
  std::vector<holder> left_, left_meanwhile_;  ///< before this sweep began, and since
  std::size_t swept_ = 0;                      ///< places that this sweep has seen
  std::vector<seat> seats_;
  std::uint32_t question_ = 0;
  std::vector<std::uint32_t> going_on_;
  std::vector<holder> gone_;
  std::uint64_t forgotten_ = 0;
  std::uint64_t unnoted_ = 0;
};

}  // namespace troupe::router
