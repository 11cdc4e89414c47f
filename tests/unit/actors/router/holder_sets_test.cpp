#include "actors/router/holder_sets.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <set>
#include <vector>

using troupe::router::holder_sets;

namespace {

std::set<holder_sets::holder> members(const holder_sets& sets, const holder_sets::cell& c) {
  std::set<holder_sets::holder> all;
  std::size_t n = 0;
  sets.for_each(c, [&](holder_sets::holder h) {
    all.insert(h);
    ++n;
  });
  CHECK(n == all.size());
  CHECK(sets.size(c) == n);
  return all;
}

}  // namespace

TEST_CASE("a set of one or two lies in its cell and takes no other memory") {
  holder_sets sets{1'000};
  holder_sets::cell c;
  CHECK(c.empty());
  CHECK_FALSE(sets.contains(c, 0));
  CHECK(sets.insert(c, 0) == holder_sets::added::yes);
  CHECK(sets.insert(c, 0) == holder_sets::added::was_there);
  CHECK(sets.insert(c, holder_sets::holders_max - 1) == holder_sets::added::yes);
  CHECK(sets.bytes() == 0);
  CHECK(members(sets, c) == std::set<holder_sets::holder>{0, holder_sets::holders_max - 1});
  CHECK(sets.erase(c, 0));
  CHECK_FALSE(sets.erase(c, 0));
  CHECK(sets.erase(c, holder_sets::holders_max - 1));
  CHECK(c.empty());
}

TEST_CASE("the owner's mark survives whatever happens to the set") {
  holder_sets sets{10'000};
  holder_sets::cell c;
  for (bool marked : {true, false}) {
    if (marked)
      c.mark();
    else
      c.unmark();
    for (holder_sets::holder h = 0; h < 200; ++h) {
      sets.insert(c, h);
      REQUIRE(c.marked() == marked);
      REQUIRE(sets.size(c) == h + 1);
    }
    for (holder_sets::holder h = 0; h < 200; ++h) {
      REQUIRE(sets.erase(c, h));
      REQUIRE(c.marked() == marked);
    }
    CHECK(c.empty());
  }
}

TEST_CASE("without room a set keeps what it has") {
  holder_sets sets{4};
  holder_sets::cell a, b;
  for (holder_sets::holder h = 0; h < 4; ++h) CHECK(sets.insert(a, h) == holder_sets::added::yes);
  CHECK(sets.insert(a, 4) == holder_sets::added::no_room);
  CHECK(members(sets, a) == std::set<holder_sets::holder>{0, 1, 2, 3});
  sets.insert(b, 0);
  sets.insert(b, 1);
  CHECK(sets.insert(b, 2) == holder_sets::added::no_room);
  CHECK(members(sets, b) == std::set<holder_sets::holder>{0, 1});
  sets.clear(a);
  CHECK(sets.insert(b, 2) == holder_sets::added::yes);
}

TEST_CASE("many sets of all sizes hold what plain sets hold", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  holder_sets sets{1U << 20U};
  std::vector<holder_sets::cell> cells(20);
  std::vector<std::set<holder_sets::holder>> plain(cells.size());
  for (int step = 0; step < 60'000; ++step) {
    const auto i = random() % cells.size();
    // Each set has its own usual size, up to some hundreds; phases of growth and of shrinking.
    const auto h = static_cast<holder_sets::holder>(random() % (1 + i * i * 2));
    if (random() % 100 < (step / 10'000 % 2 == 0 ? 70U : 30U))
      REQUIRE((sets.insert(cells[i], h) == holder_sets::added::yes) == plain[i].insert(h).second);
    else
      REQUIRE(sets.erase(cells[i], h) == (plain[i].erase(h) == 1));
    REQUIRE(sets.contains(cells[i], h) == plain[i].contains(h));
    if (step % 997 == 0)
      for (std::size_t k = 0; k < cells.size(); ++k) REQUIRE(members(sets, cells[k]) == plain[k]);
    if (random() % 5'000 == 0) {
      sets.clear(cells[i]);
      plain[i].clear();
    }
  }
  for (std::size_t k = 0; k < cells.size(); ++k) CHECK(members(sets, cells[k]) == plain[k]);
  // What sets gave back is used again: the arena is not much more than it must be.
  CHECK(sets.bytes() < 200'000);
}
