#pragma once

#include "gpu/engine/types.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe::kv {

using engine::position;
using slot_id = std::int32_t;

/// What the ledger's moves do to the real memory: an engine's runner, or a naive model in tests.
class backing {
 public:
  virtual ~backing() = default;
  virtual void copy(slot_id from, slot_id to, position begin, position end) = 0;
  virtual void remove(slot_id slot, position begin, position end) = 0;
};

/// On whose behalf a sequence is held. A cell that only the cache holds may be taken back at any
/// time.
enum class holder : std::uint8_t { job, cache };

class pool;

/// A slot and the cells in it; destroying it gives both back, to the ledger and to the memory
/// behind. Move-only. Must not outlive its pool.
class sequence {
 public:
  sequence(sequence&& other) noexcept;
  sequence& operator=(sequence&& other) noexcept;
  ~sequence();

  slot_id slot() const { return slot_; }
  /// Whether every position of [begin, end) is held.
  bool holds(position begin, position end) const;
  /// One past the last position held.
  position end() const;
  /// Books new cells for positions that were computed or imported. None of them may be held yet;
  /// there must be enough free cells.
  void extend(position begin, position end);
  /// Lets the other sequence share these cells: all of [begin, end) must be held here, none of it
  /// there.
  void share_with(sequence& other, position begin, position end) const;
  void remove(position begin, position end);
  void hand_to(holder who);
  /// How many cells of [begin, end) would become referenced if a job held them, too.
  std::uint32_t unreferenced(position begin, position end) const;

 private:
  friend class pool;
  sequence(pool& owner, slot_id slot) : pool_(&owner), slot_(slot) {}

  pool* pool_;
  slot_id slot_;
};

/// The ledger of an engine's KV memory: slots (sequences) and cells (one token each), where a cell
/// may belong to several sequences and is freed exactly when none holds it any more. It books
/// exactly what the memory behind is told, so its used cells equal the engine's own count. Pure
/// bookkeeping; one thread.
class pool {
 public:
  pool(std::uint32_t cells, slot_id slots, backing& memory);
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  /// Nothing when no slot is free.
  std::optional<sequence> open(holder who);

  std::uint32_t total() const { return static_cast<std::uint32_t>(cells_.size()); }
  std::uint32_t free() const { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t used() const { return total() - free(); }
  /// Cells that at least one job holds.
  std::uint32_t referenced() const { return referenced_; }
  /// Cells that only the cache holds.
  std::uint32_t cached() const { return used() - referenced_; }
  std::uint32_t slots_free() const { return static_cast<std::uint32_t>(free_slots_.size()); }

  /// Lowest and highest position of each slot that holds any; for the checker.
  struct range {
    slot_id slot;
    position first;
    position last;
  };
  std::vector<range> ranges() const;

 private:
  friend class sequence;
  using cell = std::uint32_t;
  static constexpr cell none = UINT32_MAX;

  struct holders {
    std::uint16_t jobs = 0;
    std::uint16_t caches = 0;
  };
  struct slot_books {
    std::vector<cell> cells;  ///< by position; `none` where nothing is held
    holder who = holder::job;
  };

  void hold(cell c, holder who);
  void let_go(cell c, holder who);
  void forget(slot_id slot, position begin, position end);

  backing& memory_;
  std::vector<holders> cells_;
  std::vector<cell> free_;
  std::vector<slot_books> slots_;
  std::vector<slot_id> free_slots_;
  std::uint32_t referenced_ = 0;
};

}  // namespace troupe::kv
