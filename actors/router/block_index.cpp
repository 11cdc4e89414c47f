#include "actors/router/block_index.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe::router {

namespace {

constexpr std::size_t nowhere = ~std::size_t{0};
constexpr std::size_t first_places = 64;
/// So many blocks ahead are fetched from memory: a place is a cache miss, and they are independent.
constexpr std::size_t prefetch_blocks = 12;
/// Places that each update sweeps while there is something left of holders that left.
constexpr int sweep_places_per_update = 2;

}  // namespace

block_index::block_index(block_index_limits limits)
    : limits_(limits), table_(first_places),
      shift_(64U - static_cast<unsigned>(std::countr_zero(first_places))),
      sets_(limits.shared_bytes_max / sizeof(std::uint32_t)) {
  limits_.blocks_max = std::max<std::size_t>(1, limits_.blocks_max);
}

block_index::holder block_index::join() {
  if (!unused_.empty()) {
    const auto h = unused_.back();
    unused_.pop_back();
    lives_[h] = life::alive;
    return h;
  }
  const auto h = static_cast<holder>(held_.size());
  held_.push_back(0);
  lives_.push_back(life::alive);
  seats_.push_back({});
  return h;
}

void block_index::leave(holder h) {
  if (held_[h] == 0) {
    lives_[h] = life::free;
    unused_.push_back(h);
    return;
  }
  lives_[h] = life::left;
  held_[h] = 0;
  if (left_.empty()) {
    left_.push_back(h);
    swept_ = 0;
  } else {
    left_meanwhile_.push_back(h);
  }
}

std::size_t block_index::find(std::uint64_t hash) const {
  const auto last = table_.size() - 1;
  for (auto i = home(hash); !table_[i].who.empty(); i = (i + 1) & last)
    if (table_[i].hash == hash) return i;
  return nowhere;
}

void block_index::add(holder h, std::span<const std::uint64_t> blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i + prefetch_blocks < blocks.size()) prefetch(blocks[i + prefetch_blocks]);
    add_one(h, blocks[i]);
    if (!left_.empty()) sweep();
  }
}

void block_index::add_one(holder h, std::uint64_t hash) {
  auto i = find(hash);
  if (i == nowhere) {
    // Three quarters full at most: searches stay short.
    if (size_ == limits_.blocks_max)
      forget_one();
    else if (size_ + 1 > table_.size() / 4 * 3)
      grow();
    const auto last = table_.size() - 1;
    i = home(hash);
    while (!table_[i].who.empty()) i = (i + 1) & last;
    // Not marked: what is new and used once gives way before what is asked for again and again.
    table_[i] = {hash, {}};
    ++size_;
  } else {
    table_[i].who.mark();
  }
  auto& who = table_[i].who;
  switch (sets_.insert(who, h)) {
  case holder_sets::added::yes:
    ++held_[h];
    break;
  case holder_sets::added::no_room:
    ++unnoted_;
    break;
  case holder_sets::added::was_there:
    break;
  }
}

void block_index::drop(holder h, std::span<const std::uint64_t> blocks) {
  for (std::size_t n = 0; n < blocks.size(); ++n) {
    if (n + prefetch_blocks < blocks.size()) prefetch(blocks[n + prefetch_blocks]);
    if (const auto i = find(blocks[n]); i != nowhere && sets_.erase(table_[i].who, h)) {
      --held_[h];
      if (table_[i].who.empty()) erase(i);
    }
    if (!left_.empty()) sweep();
  }
}

void block_index::longest(std::span<const std::uint64_t> chain, std::span<const holder> who,
                          std::span<std::uint32_t> out) {
  if (++question_ == 0) {
    std::fill(seats_.begin(), seats_.end(), seat{});
    question_ = 1;
  }
  going_on_.clear();
  for (std::uint32_t k = 0; k < who.size(); ++k) {
    out[k] = 0;
    if (held_[who[k]] == 0) continue;
    seats_[who[k]] = {question_, k};
    going_on_.push_back(k);
  }
  if (going_on_.empty()) return;
  for (std::size_t i = 0; i < std::min(prefetch_blocks, chain.size()); ++i) prefetch(chain[i]);
  for (std::uint32_t i = 0; i < chain.size() && !going_on_.empty(); ++i) {
    if (i + prefetch_blocks < chain.size()) prefetch(chain[i + prefetch_blocks]);
    const auto at = find(chain[i]);
    if (at == nowhere) return;
    auto& cell = table_[at].who;
    cell.mark();
    if (sets_.size(cell) <= going_on_.size()) {
      going_on_.clear();
      sets_.for_each(cell, [&](holder h) {
        const auto s = seats_[h];
        // Whoever lacked an earlier block stays behind.
        if (s.question != question_ || out[s.place] != i) return;
        out[s.place] = i + 1;
        going_on_.push_back(s.place);
      });
    } else {
      std::erase_if(going_on_, [&](std::uint32_t k) {
        if (!sets_.contains(cell, who[k])) return true;
        out[k] = i + 1;
        return false;
      });
    }
  }
}

void block_index::grow() {
  std::vector<slot> old(table_.size() * 2);
  old.swap(table_);
  --shift_;
  size_ = 0;
  const auto last = table_.size() - 1;
  for (auto& s : old) {
    if (s.who.empty()) continue;
    purge(s.who);
    if (s.who.empty()) continue;
    auto i = home(s.hash);
    while (!table_[i].who.empty()) i = (i + 1) & last;
    table_[i] = s;
    ++size_;
  }
  end_sweep();
  end_sweep();
}

/// Those behind move up, so that a search still ends at the first gap.
void block_index::erase(std::size_t i) {
  const auto last = table_.size() - 1;
  for (auto j = (i + 1) & last; !table_[j].who.empty(); j = (j + 1) & last) {
    if (((j - home(table_[j].hash)) & last) < ((j - i) & last)) continue;
    table_[i] = table_[j];
    // A sweep must see what moves from ahead of it to behind it.
    if (j >= swept_ && i < swept_) swept_ = i;
    i = j;
  }
  table_[i] = {};
  --size_;
}

void block_index::forget_one() {
  const auto last = table_.size() - 1;
  for (;; hand_ = (hand_ + 1) & last) {
    auto& s = table_[hand_ &= last];
    if (s.who.empty()) continue;
    if (s.who.marked()) {
      s.who.unmark();
      continue;
    }
    sets_.for_each(s.who, [this](holder h) {
      if (lives_[h] == life::alive) --held_[h];
    });
    sets_.clear(s.who);
    erase(hand_);
    ++forgotten_;
    return;
  }
}

void block_index::purge(holder_sets::cell& c) {
  gone_.clear();
  sets_.for_each(c, [this](holder h) {
    if (lives_[h] == life::left) gone_.push_back(h);
  });
  for (auto h : gone_) sets_.erase(c, h);
}

void block_index::sweep() {
  for (int n = 0; n < sweep_places_per_update && swept_ < table_.size(); ++n) {
    auto& s = table_[swept_];
    if (!s.who.empty()) {
      purge(s.who);
      if (s.who.empty()) {
        erase(swept_);
        continue;  // another may have moved up to this place
      }
    }
    ++swept_;
  }
  if (swept_ == table_.size()) end_sweep();
}

/// Whoever left before it began has nothing left here.
void block_index::end_sweep() {
  for (auto h : left_) {
    lives_[h] = life::free;
    unused_.push_back(h);
  }
  left_ = std::exchange(left_meanwhile_, {});
  swept_ = 0;
}

std::size_t block_index::bytes() const {
  return table_.capacity() * sizeof(slot) + sets_.bytes() +
         held_.capacity() * (sizeof(std::uint32_t) + sizeof(life) + sizeof(seat));
}

}  // namespace troupe::router
