#include "actors/router/holder_sets.hpp"

#include <algorithm>

namespace troupe::router {

namespace {

constexpr std::size_t nowhere = ~std::size_t{0};

}  // namespace

void holder_sets::place(cell& c, std::size_t at, unsigned cls, std::size_t n) {
  c.a = static_cast<std::uint32_t>(at / class_0_words) | spilled_bit;
  c.b = (c.b & mark_bit) | cls << class_shift | static_cast<std::uint32_t>(n);
}

bool holder_sets::allocate(unsigned cls, std::size_t& at) {
  if (cls >= classes) return false;
  const auto n = words(cls);
  if (free_[cls] != 0) {
    at = std::size_t{free_[cls] - 1} * class_0_words;
    free_[cls] = arena_[at];
    std::fill_n(arena_.begin() + static_cast<std::ptrdiff_t>(at), n, 0U);
    return true;
  }
  at = arena_.size();
  if (at + n > words_max_) return false;
  // By quarters: doubling would leave half of it unused.
  if (at + n > arena_.capacity())
    arena_.reserve(std::min(words_max_, std::max(at + n, arena_.capacity() + at / 4)));
  arena_.resize(at + n);
  return true;
}

void holder_sets::free(unsigned cls, std::size_t at) {
  arena_[at] = free_[cls];
  free_[cls] = static_cast<std::uint32_t>(at / class_0_words) + 1;
}

void holder_sets::put(std::uint32_t* w, unsigned cls, std::size_t n, holder h) {
  if (words(cls) <= list_words_max) {
    w[n] = h + 1;
    return;
  }
  const auto last = words(cls) - 1;
  auto i = home(h, cls);
  while (w[i] != 0) i = (i + 1) & last;
  w[i] = h + 1;
}

/// False: there is no room; nothing has changed.
bool holder_sets::move_to(cell& c, unsigned cls) {
  std::size_t at = 0;
  if (!allocate(cls, at)) return false;
  std::size_t n = 0;
  for_each(c, [&](holder h) { put(arena_.data() + at, cls, n++, h); });
  if (spilled(c)) free(class_of(c), offset(c));
  place(c, at, cls, n);
  return true;
}

holder_sets::added holder_sets::insert(cell& c, holder h) {
  const auto v = h + 1;
  if (!spilled(c)) {
    if (c.a == v || low(c.b) == v) return added::was_there;
    if (c.a == 0) {
      c.a = v;
      return added::yes;
    }
    if (low(c.b) == 0) {
      c.b |= v;
      return added::yes;
    }
    if (!move_to(c, 0)) return added::no_room;
  } else if (contains(c, h)) {
    return added::was_there;
  }
  // A table is kept three quarters full at most.
  const auto full = hashed(c) ? capacity(c) / 4 * 3 : capacity(c);
  if (count(c) == full && !move_to(c, class_of(c) + 1)) return added::no_room;
  put(arena_.data() + offset(c), class_of(c), count(c), h);
  ++c.b;
  return added::yes;
}

std::size_t holder_sets::find(const cell& c, holder h) const {
  const auto* w = arena_.data() + offset(c);
  if (!hashed(c)) {
    for (std::size_t i = 0; i < count(c); ++i)
      if (w[i] == h + 1) return i;
    return nowhere;
  }
  const auto last = capacity(c) - 1;
  for (auto i = home(h, class_of(c)); w[i] != 0; i = (i + 1) & last)
    if (w[i] == h + 1) return i;
  return nowhere;
}

bool holder_sets::contains(const cell& c, holder h) const {
  if (spilled(c)) return find(c, h) != nowhere;
  return c.a == h + 1 || low(c.b) == h + 1;
}

std::size_t holder_sets::size(const cell& c) const {
  if (spilled(c)) return count(c);
  return (c.a != 0 ? 1U : 0U) + (low(c.b) != 0 ? 1U : 0U);
}

void holder_sets::take_out(cell& c, std::size_t i) {
  auto* w = arena_.data() + offset(c);
  if (!hashed(c)) {
    w[i] = w[count(c) - 1];
    w[count(c) - 1] = 0;
    --c.b;
    return;
  }
  // Those behind move up, so that a search still ends at the first gap.
  const auto last = capacity(c) - 1;
  for (auto j = (i + 1) & last; w[j] != 0; j = (j + 1) & last) {
    const auto wanted = home(w[j] - 1, class_of(c));
    if (((j - wanted) & last) < ((j - i) & last)) continue;
    w[i] = w[j];
    i = j;
  }
  w[i] = 0;
  --c.b;
}

bool holder_sets::erase(cell& c, holder h) {
  if (!spilled(c)) {
    if (low(c.b) == h + 1) {
      c.b &= mark_bit;
      return true;
    }
    if (c.a != h + 1) return false;
    c.a = low(c.b);
    c.b &= mark_bit;
    return true;
  }
  const auto i = find(c, h);
  if (i == nowhere) return false;
  take_out(c, i);
  if (count(c) <= 2) {
    std::array<holder, 2> rest{};
    std::size_t n = 0;
    for_each(c, [&](holder x) { rest[n++] = x + 1; });
    free(class_of(c), offset(c));
    c.a = rest[0];
    c.b = (c.b & mark_bit) | rest[1];
  } else if (class_of(c) > 0 && count(c) <= capacity(c) / 4) {
    move_to(c, class_of(c) - 1);
  }
  return true;
}

void holder_sets::clear(cell& c) {
  if (spilled(c)) free(class_of(c), offset(c));
  c.a = 0;
  c.b &= mark_bit;
}

}  // namespace troupe::router
