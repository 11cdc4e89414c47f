#include "gpu/kv/kv_pool.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe::kv {

// -- pool ---------------------------------------------------------------------

pool::pool(std::uint32_t cells, slot_id slots, backing& memory)
    : memory_(memory), cells_(cells), slots_(static_cast<std::size_t>(slots)) {
  free_.reserve(cells);
  for (cell c = cells; c > 0; --c) free_.push_back(c - 1);
  for (slot_id s = slots; s > 0; --s) free_slots_.push_back(s - 1);
}

std::optional<sequence> pool::open(holder who) {
  if (free_slots_.empty()) return std::nullopt;
  const auto slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[static_cast<std::size_t>(slot)].who = who;
  return sequence(*this, slot);
}

void pool::hold(cell c, holder who) {
  auto& h = cells_[c];
  if (who == holder::job && h.jobs++ == 0) ++referenced_;
  if (who == holder::cache) ++h.caches;
}

void pool::let_go(cell c, holder who) {
  auto& h = cells_[c];
  if (who == holder::job && --h.jobs == 0) --referenced_;
  if (who == holder::cache) --h.caches;
  if (h.jobs == 0 && h.caches == 0) free_.push_back(c);
}

void pool::forget(slot_id slot, position begin, position end) {
  auto& books = slots_[static_cast<std::size_t>(slot)];
  end = std::min(end, static_cast<position>(books.cells.size()));
  for (auto p = begin; p < end; ++p) {
    if (books.cells[p] == none) continue;
    let_go(books.cells[p], books.who);
    books.cells[p] = none;
  }
  while (!books.cells.empty() && books.cells.back() == none) books.cells.pop_back();
}

std::vector<pool::range> pool::ranges() const {
  std::vector<range> out;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    const auto& cells = slots_[s].cells;
    if (cells.empty()) continue;
    position first = 0;
    while (cells[first] == none) ++first;
    out.push_back({static_cast<slot_id>(s), first, static_cast<position>(cells.size() - 1)});
  }
  return out;
}

// -- sequence -----------------------------------------------------------------

sequence::sequence(sequence&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), slot_(other.slot_) {}

sequence& sequence::operator=(sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(slot_, other.slot_);
  return *this;
}

sequence::~sequence() {
  if (pool_ == nullptr) return;
  const auto held = end();
  if (held > 0) {
    pool_->memory_.remove(slot_, 0, held);
    pool_->forget(slot_, 0, held);
  }
  pool_->free_slots_.push_back(slot_);
}

position sequence::end() const {
  return static_cast<position>(pool_->slots_[static_cast<std::size_t>(slot_)].cells.size());
}

bool sequence::holds(position begin, position end) const {
  const auto& cells = pool_->slots_[static_cast<std::size_t>(slot_)].cells;
  if (end > cells.size()) return begin >= end;
  return std::none_of(cells.begin() + begin, cells.begin() + std::max(begin, end),
                      [](pool::cell c) { return c == pool::none; });
}

void sequence::extend(position begin, position end) {
  if (begin >= end) return;
  auto& books = pool_->slots_[static_cast<std::size_t>(slot_)];
  if (books.cells.size() < end) books.cells.resize(end, pool::none);
  for (auto p = begin; p < end; ++p) {
    assert(books.cells[p] == pool::none && !pool_->free_.empty());
    const auto c = pool_->free_.back();
    pool_->free_.pop_back();
    books.cells[p] = c;
    pool_->hold(c, books.who);
  }
}

void sequence::share_with(sequence& other, position begin, position end) const {
  if (begin >= end) return;
  assert(holds(begin, end) && pool_ == other.pool_ && slot_ != other.slot_);
  const auto& from = pool_->slots_[static_cast<std::size_t>(slot_)];
  auto& to = pool_->slots_[static_cast<std::size_t>(other.slot_)];
  if (to.cells.size() < end) to.cells.resize(end, pool::none);
  for (auto p = begin; p < end; ++p) {
    assert(to.cells[p] == pool::none);
    to.cells[p] = from.cells[p];
    pool_->hold(to.cells[p], to.who);
  }
  pool_->memory_.copy(slot_, other.slot_, begin, end);
}

void sequence::remove(position begin, position end) {
  end = std::min(end, this->end());
  if (begin >= end) return;
  pool_->memory_.remove(slot_, begin, end);
  pool_->forget(slot_, begin, end);
}

void sequence::hand_to(holder who) {
  auto& books = pool_->slots_[static_cast<std::size_t>(slot_)];
  if (books.who == who) return;
  for (const auto c : books.cells) {
    if (c == pool::none) continue;
    pool_->hold(c, who);
    pool_->let_go(c, books.who);
  }
  books.who = who;
}

std::uint32_t sequence::unreferenced(position begin, position end) const {
  const auto& cells = pool_->slots_[static_cast<std::size_t>(slot_)].cells;
  std::uint32_t count = 0;
  for (auto p = begin; p < std::min(end, static_cast<position>(cells.size())); ++p)
    if (cells[p] != pool::none && pool_->cells_[cells[p]].jobs == 0) ++count;
  return count;
}

}  // namespace troupe::kv
