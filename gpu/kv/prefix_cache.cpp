#include "gpu/kv/prefix_cache.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::kv {

position common_prefix(std::span<const token_id> a, std::span<const token_id> b) {
  const auto n = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<position>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first -
                               a.begin());
}

prefix_cache::match prefix_cache::find(std::span<const token_id> tokens, prefix_scope scope) {
  auto best = entries_.end();
  position length = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->scope != scope) continue;
    const auto common = common_prefix(it->tokens, tokens);
    if (common > length) {
      length = common;
      best = it;
    }
  }
  if (best == entries_.end()) return {};
  entries_.splice(entries_.begin(), entries_, best);
  return {&entries_.front().kv, length};
}

void prefix_cache::insert(sequence kv, std::vector<token_id> tokens,
                          std::vector<std::uint64_t> chain, prefix_scope scope) {
  if (entries_max_ == 0 || tokens.empty()) return;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->scope != scope || it->tokens.size() < tokens.size() ||
        common_prefix(it->tokens, tokens) != tokens.size())
      continue;
    // Covered already, but perhaps told under other hashes: the same tokens may come from other
    // bytes.
    std::erase_if(chain, [&](std::uint64_t hash) {
      return std::find(it->chain.begin(), it->chain.end(), hash) != it->chain.end();
    });
    if (it->chain.size() + chain.size() <= entry_hashes_max) {
      announce(chain);
      it->chain.insert(it->chain.end(), chain.begin(), chain.end());
    }
    entries_.splice(entries_.begin(), entries_, it);
    return;
  }
  kv.hand_to(holder::cache);
  announce(chain);
  entries_.push_front({std::move(kv), std::move(tokens), std::move(chain), scope});
  const std::span<const token_id> longest = entries_.front().tokens;
  for (auto it = std::next(entries_.begin()); it != entries_.end();) {
    const auto here = it++;
    if (here->scope == scope && common_prefix(here->tokens, longest) == here->tokens.size())
      drop(here);
  }
  while (entries_.size() > entries_max_) evict_one();
}

bool prefix_cache::evict_one() {
  if (entries_.empty()) return false;
  drop(std::prev(entries_.end()));
  return true;
}

void prefix_cache::clear() {
  while (evict_one()) {
  }
}

void prefix_cache::announce(const std::vector<std::uint64_t>& chain) {
  for (const auto hash : chain) {
    ++holders_[hash];
    touched_.insert(hash);
  }
}

void prefix_cache::drop(entries::iterator which) {
  for (const auto hash : which->chain) {
    const auto found = holders_.find(hash);
    if (--found->second == 0) holders_.erase(found);
    touched_.insert(hash);
  }
  entries_.erase(which);
}

prefix_cache::changes prefix_cache::take_changes() {
  changes out;
  for (const auto hash : touched_) {
    if (holders_.contains(hash)) {
      if (told_.insert(hash).second) out.added.push_back(hash);
    } else if (told_.erase(hash) > 0) {
      out.dropped.push_back(hash);
    }
  }
  touched_.clear();
  return out;
}

}  // namespace troupe::kv
