#pragma once

#include "gpu/kv/kv_pool.hpp"

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe::kv {

using engine::token_id;

/// Tokens in common at the beginning.
position common_prefix(std::span<const token_id> a, std::span<const token_id> b);

/// Hashes that one cached sequence may be known by; beyond it further ones are not told (reuse
/// itself doesn't need them).
inline constexpr std::size_t entry_hashes_max = 65'536;

/// Whose prompts may find an entry: those of the same scope alone (a tenant's; 0: everybody's who
/// has none of their own).
using prefix_scope = std::uint64_t;

/// Sequences of finished jobs, kept for reuse: least recently used go first. Reuse is exact, token
/// by token, within a scope; the byte-block hashes are only what routers are told. Limits:
/// `entries_max` sequences (the oldest is dropped), and cells are taken back by whoever needs them
/// (`evict_one`). Pure bookkeeping; one thread.
class prefix_cache {
 public:
  explicit prefix_cache(std::size_t entries_max) : entries_max_(entries_max) {}

  struct match {
    const sequence* kv = nullptr;  ///< null: nothing in common
    position length = 0;
  };
  /// The entry with the longest prefix in common; it becomes the most recently used one.
  match find(std::span<const token_id> tokens, prefix_scope scope = 0);

  /// Keeps a sequence that holds [0, tokens.size()). What it makes superfluous is dropped; when an
  /// entry already covers it, that one is kept instead.
  void insert(sequence kv, std::vector<token_id> tokens, std::vector<std::uint64_t> chain,
              prefix_scope scope = 0);
  /// Drops the least recently used entry. False: there is none.
  bool evict_one();
  void clear();

  std::size_t size() const { return entries_.size(); }

  /// Hashes that came or went since the last call; what came and went in between isn't told.
  struct changes {
    std::vector<std::uint64_t> added;
    std::vector<std::uint64_t> dropped;
  };
  changes take_changes();

 private:
  struct entry {
    sequence kv;
    std::vector<token_id> tokens;
    std::vector<std::uint64_t> chain;
    prefix_scope scope = 0;
  };
  using entries = std::list<entry>;

  void announce(const std::vector<std::uint64_t>& chain);
  void drop(entries::iterator which);

  std::size_t entries_max_;
  entries entries_;                                           ///< most recently used first
  std::unordered_map<std::uint64_t, std::uint32_t> holders_;  ///< entries by hash
  std::unordered_set<std::uint64_t> told_;
  std::unordered_set<std::uint64_t> touched_;
};

}  // namespace troupe::kv
