#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::router {

/// Sets of small numbers, many of them, most with one or two members: those lie in the cell itself,
/// larger ones in a common arena (up to 8 as a list, beyond that as a hash table, so that asking
/// for a member takes the same time however many there are). Not thread-safe.
class holder_sets {
 public:
  using holder = std::uint32_t;
  /// Numbers are below this.
  static constexpr holder holders_max = 0x7FFF'FFFE;

  /// A set's place in its owner's table. One bit of it is the owner's. Copies are moves: whoever
  /// keeps one forgets the other.
  struct cell {
    std::uint32_t a = 0;  ///< first member + 1, or where it lies in the arena
    std::uint32_t b = 0;  ///< second member + 1, or class and count; the owner's mark
    bool empty() const { return a == 0; }
    bool marked() const { return (b & mark_bit) != 0; }
    void mark() { b |= mark_bit; }
    void unmark() { b &= ~mark_bit; }
  };

  /// `words_max`: of the arena, 4 bytes each.
  explicit holder_sets(std::size_t words_max) : words_max_(words_max) {}

  enum class added : std::uint8_t { yes, was_there, no_room };
  added insert(cell& c, holder h);
  bool erase(cell& c, holder h);
  bool contains(const cell& c, holder h) const;
  std::size_t size(const cell& c) const;
  /// Calls `f(holder)` for each; `f` must not change sets.
  template <class F>
  void for_each(const cell& c, F&& f) const {
    if (!spilled(c)) {
      if (c.a != 0) f(c.a - 1);
      if (low(c.b) != 0) f(low(c.b) - 1);
      return;
    }
    const auto* w = arena_.data() + offset(c);
    const auto n = hashed(c) ? capacity(c) : count(c);
    for (std::size_t i = 0; i < n; ++i)
      if (w[i] != 0) f(w[i] - 1);
  }
  /// Forgets all members; the owner's mark stays.
  void clear(cell& c);

  std::size_t bytes() const { return arena_.capacity() * sizeof(std::uint32_t); }

 private:
  static constexpr std::uint32_t spilled_bit = 1U << 31U, mark_bit = 1U << 31U;
  static constexpr unsigned class_shift = 26, classes = 24;
  static constexpr std::uint32_t count_mask = (1U << class_shift) - 1;
  /// Sets of up to so many words are lists.
  static constexpr std::size_t list_words_max = 8;
  static constexpr std::size_t class_0_words = 4;

  static std::uint32_t low(std::uint32_t x) { return x & ~mark_bit; }
  static bool spilled(const cell& c) { return (c.a & spilled_bit) != 0; }
  static std::size_t offset(const cell& c) {
    return std::size_t{c.a & ~spilled_bit} * class_0_words;
  }
  static unsigned class_of(const cell& c) { return low(c.b) >> class_shift; }
  static std::size_t count(const cell& c) { return c.b & count_mask; }
  static std::size_t words(unsigned cls) { return class_0_words << cls; }
  static std::size_t capacity(const cell& c) { return words(class_of(c)); }
  static bool hashed(const cell& c) { return capacity(c) > list_words_max; }
  static std::size_t home(holder h, unsigned cls) {
    return (h * 0x9E37'79B1U) >> (32U - (cls + 2U));
  }
  static void place(cell& c, std::size_t at, unsigned cls, std::size_t n);

  bool allocate(unsigned cls, std::size_t& at);
  void free(unsigned cls, std::size_t at);
  bool move_to(cell& c, unsigned cls);
  static void put(std::uint32_t* w, unsigned cls, std::size_t n, holder h);
  std::size_t find(const cell& c, holder h) const;
  void take_out(cell& c, std::size_t i);

  std::vector<std::uint32_t> arena_;
  std::array<std::uint32_t, classes> free_{};  ///< first free place of each class + 1; 0: none
  std::size_t words_max_;
};

}  // namespace troupe::router
