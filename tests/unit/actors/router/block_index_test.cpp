#include "actors/router/block_index.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <set>
#include <vector>

using troupe::router::block_index;

namespace {

using blocks = std::vector<std::uint64_t>;
using holders = std::vector<block_index::holder>;

std::vector<std::uint32_t> longest(block_index& index, const blocks& chain, const holders& who) {
  std::vector<std::uint32_t> out(who.size(), 99);
  index.longest(chain, who, out);
  return out;
}

using lengths = std::vector<std::uint32_t>;

/// The same, as plainly as can be.
struct naive_index {
  std::map<std::uint64_t, std::set<block_index::holder>> by_block;

  void add(block_index::holder h, const blocks& b) {
    for (auto x : b) by_block[x].insert(h);
  }
  void drop(block_index::holder h, const blocks& b) {
    for (auto x : b)
      if (auto i = by_block.find(x); i != by_block.end()) {
        i->second.erase(h);
        if (i->second.empty()) by_block.erase(i);
      }
  }
  void leave(block_index::holder h) {
    for (auto i = by_block.begin(); i != by_block.end();) {
      i->second.erase(h);
      i = i->second.empty() ? by_block.erase(i) : std::next(i);
    }
  }
  std::uint32_t longest(const blocks& chain, block_index::holder h) const {
    std::uint32_t n = 0;
    for (auto x : chain) {
      auto i = by_block.find(x);
      if (i == by_block.end() || !i->second.contains(h)) break;
      ++n;
    }
    return n;
  }
  std::size_t held(block_index::holder h) const {
    std::size_t n = 0;
    for (const auto& [b, who] : by_block) n += who.count(h);
    return n;
  }
};

}  // namespace

TEST_CASE("an index knows how far each worker has a chain, from its beginning on") {
  block_index index;
  const auto a = index.join(), b = index.join(), c = index.join();
  index.add(a, blocks{1, 2, 3});
  index.add(b, blocks{1, 2, 3, 4, 5});
  index.add(c, blocks{2, 3, 4});
  CHECK(longest(index, {1, 2, 3, 4, 5, 6}, {a, b, c}) == lengths{3, 5, 0});
  CHECK(longest(index, {2, 3}, {c, a}) == lengths{2, 2});
  CHECK(longest(index, {}, {a}) == lengths{0});
  CHECK(longest(index, {1}, {}).empty());
  CHECK(index.blocks() == 5);
  CHECK(index.held(b) == 5);
}

TEST_CASE("any number can be a block's hash") {
  block_index index;
  const auto a = index.join();
  index.add(a, blocks{0, ~std::uint64_t{0}, 1});
  CHECK(longest(index, {0, ~std::uint64_t{0}, 1, 2}, {a}) == lengths{3});
  index.drop(a, blocks{0});
  CHECK(longest(index, {0, ~std::uint64_t{0}}, {a}) == lengths{0});
}

TEST_CASE("dropped blocks are gone for who dropped them, and only for them; twice does no harm") {
  block_index index;
  const auto a = index.join(), b = index.join();
  index.add(a, blocks{1, 2, 3});
  index.add(a, blocks{1, 2, 3});
  index.add(b, blocks{1, 2, 3});
  index.drop(a, blocks{2, 77});
  index.drop(a, blocks{2});
  CHECK(longest(index, {1, 2, 3}, {a, b}) == lengths{1, 3});
  CHECK(index.held(a) == 2);
  index.drop(b, blocks{1, 2, 3});
  index.drop(a, blocks{1, 3});
  CHECK(index.blocks() == 0);
  CHECK(index.held(a) == 0);
}

TEST_CASE("what a worker's earlier life held is gone at once, whoever gets its number next") {
  block_index index;
  const auto a = index.join(), b = index.join();
  index.add(a, blocks{1, 2, 3});
  index.add(b, blocks{1, 2});
  index.leave(a);
  // The old one's blocks are still in memory: no new holder may inherit them.
  std::vector<block_index::holder> fresh;
  for (int i = 0; i < 4; ++i) fresh.push_back(index.join());
  for (auto h : fresh) {
    CHECK(index.held(h) == 0);
    CHECK(longest(index, {1, 2, 3}, {h, b}) == lengths{0, 2});
    index.add(h, blocks{1});
    CHECK(longest(index, {1, 2, 3}, {h}) == lengths{1});
  }
  // Updates sweep it up; then its number is used again, and block 3 is nobody's.
  for (std::uint64_t i = 100; i < 1'100; ++i) index.add(b, blocks{i});
  CHECK(index.blocks() == 1'002);
  const auto again = index.join();
  CHECK(again == a);
  index.add(again, blocks{1});
  CHECK(longest(index, {1, 2, 3}, {again}) == lengths{1});
}

TEST_CASE("a holder that had nothing gives its number back at once") {
  block_index index;
  const auto a = index.join();
  index.leave(a);
  CHECK(index.join() == a);
}

TEST_CASE("at the limit a block that nobody asked for gives way, and no count goes wrong") {
  block_index index{{.blocks_max = 100, .shared_bytes_max = 1U << 20U}};
  const auto a = index.join();
  blocks hot;
  for (std::uint64_t i = 0; i < 20; ++i) hot.push_back(i);
  index.add(a, hot);
  for (std::uint64_t i = 1'000; i < 3'000; ++i) {
    index.add(a, blocks{i});
    REQUIRE(longest(index, hot, {a}) == lengths{20});  // walked over all the time: it stays
    REQUIRE(index.blocks() <= 100);
  }
  CHECK(index.blocks() == 100);
  CHECK(index.held(a) == 100);
  CHECK(index.forgotten() == 1'920);
  CHECK(index.bytes() < 64 * 1'024);
}

TEST_CASE("without room for holders a block keeps those that are known") {
  block_index index{{.blocks_max = 100, .shared_bytes_max = 16}};
  holders who;
  for (int i = 0; i < 6; ++i) {
    who.push_back(index.join());
    index.add(who.back(), blocks{1});
  }
  CHECK(longest(index, {1}, who) == lengths{1, 1, 1, 1, 0, 0});
  CHECK(index.unnoted() == 2);
  CHECK(index.held(who[5]) == 0);
  index.drop(who[5], blocks{1});
  CHECK(index.held(who[5]) == 0);
}

TEST_CASE("a block that is held by thousands is asked about like any other") {
  block_index index;
  holders who;
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    who.push_back(index.join());
    index.add(who.back(), blocks{1, 2, 1'000 + i});
  }
  CHECK(longest(index, {1, 2, 1'007, 1'008}, {who[6], who[7], who[8]}) == lengths{2, 3, 2});
  for (auto h : who) index.drop(h, blocks{1});
  CHECK(longest(index, {1, 2}, {who[0]}) == lengths{0});
  CHECK(index.blocks() == 3'001);
}

TEST_CASE("whatever comes in whatever order, the index says what a plain one says", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  block_index index;
  naive_index plain;
  // Chains with common beginnings; few enough that holders meet.
  std::vector<blocks> chains;
  for (int i = 0; i < 60; ++i) {
    blocks c;
    if (!chains.empty()) {
      const auto& other = chains[below(chains.size())];
      c.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)));
    }
    const auto more = 1 + below(30);
    for (std::size_t k = 0; k < more; ++k) c.push_back(std::uint64_t{random()} << 32U | random());
    chains.push_back(std::move(c));
  }
  holders who;
  for (int i = 0; i < 40; ++i) who.push_back(index.join());
  for (int step = 0; step < 6'000; ++step) {
    auto& h = who[below(who.size())];
    const auto& chain = chains[below(chains.size())];
    const blocks part(chain.begin(),
                      chain.begin() + static_cast<std::ptrdiff_t>(below(chain.size() + 1)));
    switch (below(8)) {
    case 0:
    case 1:
    case 2:
      index.add(h, part);
      plain.add(h, part);
      break;
    case 3: {  // from the middle, too: nobody promises that ends go first
      const blocks rest(chain.begin() + static_cast<std::ptrdiff_t>(part.size()), chain.end());
      index.drop(h, rest);
      plain.drop(h, rest);
      break;
    }
    case 4:
      if (below(10) == 0) {
        index.leave(h);
        plain.leave(h);
        h = index.join();
      }
      break;
    default: {
      holders some;
      for (auto x : who)
        if (below(3) == 0) some.push_back(x);
      const auto out = longest(index, chain, some);
      for (std::size_t k = 0; k < some.size(); ++k)
        REQUIRE(out[k] == plain.longest(chain, some[k]));
    }
    }
    if (step % 500 == 0)
      for (auto x : who) REQUIRE(index.held(x) == plain.held(x));
  }
  // All that is left of who left is swept up by updates.
  for (auto h : who) {
    index.leave(h);
    plain.leave(h);
  }
  const auto last = index.join();
  for (int i = 0; i < 20'000; ++i) index.add(last, blocks{1});
  CHECK(index.blocks() == 1);
}

TEST_CASE("a tight index claims less than there is, never more", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  block_index index{{.blocks_max = 300, .shared_bytes_max = 2'048}};
  naive_index plain;
  holders who;
  for (int i = 0; i < 30; ++i) who.push_back(index.join());
  for (int step = 0; step < 20'000; ++step) {
    auto& h = who[random() % who.size()];
    blocks b;
    for (std::uint64_t i = random() % 200, n = i + random() % 20; i < n; ++i) b.push_back(i * i);
    const auto what = random() % 10;
    if (what < 6) {
      index.add(h, b);
      plain.add(h, b);
    } else if (what < 8) {
      index.drop(h, b);
      plain.drop(h, b);
    } else if (random() % 50 == 0) {
      index.leave(h);
      plain.leave(h);
      h = index.join();
    }
    const auto out = longest(index, b, who);
    for (std::size_t k = 0; k < who.size(); ++k) REQUIRE(out[k] <= plain.longest(b, who[k]));
    REQUIRE(index.blocks() <= 300);
    REQUIRE(index.held(h) <= plain.held(h));
  }
}
