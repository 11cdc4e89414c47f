// The ledger against a naive model of llama.cpp's cache: a list of cells, each with its position
// and the set of sequences it belongs to.

#include "gpu/kv/kv_pool.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace troupe::kv;

namespace {

class naive_memory final : public backing {
 public:
  struct cell {
    position pos;
    std::set<slot_id> slots;
  };
  std::vector<cell> cells;

  void compute(slot_id slot, position begin, position end) {
    for (auto p = begin; p < end; ++p) cells.push_back({p, {slot}});
  }
  void copy(slot_id from, slot_id to, position begin, position end) override {
    for (auto& c : cells)
      if (c.pos >= begin && c.pos < end && c.slots.contains(from)) c.slots.insert(to);
  }
  void remove(slot_id slot, position begin, position end) override {
    for (auto& c : cells)
      if (c.pos >= begin && c.pos < end) c.slots.erase(slot);
    std::erase_if(cells, [](const cell& c) { return c.slots.empty(); });
  }
  std::set<position> positions(slot_id slot) const {
    std::set<position> out;
    for (const auto& c : cells)
      if (c.slots.contains(slot)) out.insert(c.pos);
    return out;
  }
};

}  // namespace

TEST_CASE("kv pool: random moves; used, referenced and cached cells are those of the naive model") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](std::size_t n) { return static_cast<position>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    naive_memory memory;
    const std::uint32_t total = 1 + upto(80);
    const auto slots = static_cast<slot_id>(1 + upto(8));
    pool books(total, slots, memory);
    std::map<slot_id, holder> who;
    {
      std::vector<sequence> open;
      for (int i = 0; i < 400; ++i) {
        const auto action = upto(7);
        if (action == 0) {
          const auto holds = upto(2) == 0 ? holder::job : holder::cache;
          auto opened = books.open(holds);
          REQUIRE(opened.has_value() == (open.size() < static_cast<std::size_t>(slots)));
          if (opened) {
            REQUIRE(memory.positions(opened->slot()).empty());
            who[opened->slot()] = holds;
            open.push_back(std::move(*opened));
          }
        } else if (!open.empty()) {
          auto& s = open[upto(open.size())];
          const auto held = memory.positions(s.slot());
          const auto begin = upto(30);
          const auto end = begin + upto(12);
          const auto any = std::any_of(held.begin(), held.end(),
                                       [&](position p) { return p >= begin && p < end; });
          if (action == 1 && !any && end - begin <= books.free()) {
            memory.compute(s.slot(), begin, end);
            s.extend(begin, end);
          } else if (action == 2) {
            s.remove(begin, end);
          } else if (action == 3) {
            who.erase(s.slot());
            std::swap(s, open.back());
            open.pop_back();
            continue;
          } else if (action == 4) {
            auto& other = open[upto(open.size())];
            const auto theirs = memory.positions(other.slot());
            const bool free = std::none_of(theirs.begin(), theirs.end(),
                                           [&](position p) { return p >= begin && p < end; });
            const auto mine = std::count_if(held.begin(), held.end(),
                                            [&](position p) { return p >= begin && p < end; });
            REQUIRE(s.holds(begin, end) == (mine == end - begin));
            if (&other != &s && free && mine == end - begin) s.share_with(other, begin, end);
          } else if (action == 5) {
            who[s.slot()] = upto(2) == 0 ? holder::job : holder::cache;
            s.hand_to(who[s.slot()]);
          }
          const auto now = memory.positions(s.slot());
          REQUIRE(s.end() == (now.empty() ? 0 : *now.rbegin() + 1));
        }
        const auto by_job = std::count_if(
            memory.cells.begin(), memory.cells.end(), [&](const auto& c) {
              return std::any_of(c.slots.begin(), c.slots.end(),
                                 [&](slot_id slot) { return who.at(slot) == holder::job; });
            });
        REQUIRE(books.used() == memory.cells.size());
        REQUIRE(books.free() == total - memory.cells.size());
        REQUIRE(books.referenced() == by_job);
        REQUIRE(books.cached() == memory.cells.size() - static_cast<std::size_t>(by_job));
        for (const auto& range : books.ranges()) {
          const auto held = memory.positions(range.slot);
          REQUIRE(range.first == *held.begin());
          REQUIRE(range.last == *held.rbegin());
        }
      }
    }
    REQUIRE(memory.cells.empty());
    REQUIRE(books.used() == 0);
    REQUIRE(books.slots_free() == static_cast<std::uint32_t>(slots));
  }
}

TEST_CASE("kv pool: a shared cell is counted once and freed by its last holder") {
  naive_memory memory;
  pool books(10, 3, memory);
  auto a = books.open(holder::job);
  memory.compute(a->slot(), 0, 6);
  a->extend(0, 6);
  auto b = books.open(holder::cache);
  a->share_with(*b, 0, 4);
  CHECK(books.used() == 6);
  CHECK(b->unreferenced(0, 4) == 0);
  a.reset();
  CHECK(books.used() == 4);
  CHECK(books.referenced() == 0);
  CHECK(b->unreferenced(0, 4) == 4);
  b.reset();
  CHECK(books.used() == 0);
  CHECK(memory.cells.empty());
}
