#include "gpu/kv/output_predictor.hpp"
#include "gpu/kv/prefix_cache.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>

using namespace troupe::kv;

namespace {

class no_memory final : public backing {
  void copy(slot_id, slot_id, position, position) override {}
  void remove(slot_id, position, position) override {}
};

struct fixture {
  no_memory memory;
  pool books{10'000, 64, memory};
  prefix_cache cache{4};

  void keep(std::vector<token_id> tokens, std::vector<std::uint64_t> chain = {},
            prefix_scope scope = 0) {
    auto kv = books.open(holder::job);
    REQUIRE(kv);
    kv->extend(0, static_cast<position>(tokens.size()));
    cache.insert(std::move(*kv), std::move(tokens), std::move(chain), scope);
  }
};

using hashes = std::vector<std::uint64_t>;

hashes sorted(hashes h) {
  std::sort(h.begin(), h.end());
  return h;
}

}  // namespace

TEST_CASE("prefix cache: finds the longest common prefix, exactly") {
  fixture f;
  f.keep({1, 2, 3, 4});
  f.keep({1, 2, 9});
  const std::vector<token_id> wanted{1, 2, 3, 7};
  const auto found = f.cache.find(wanted);
  CHECK(found.length == 3);
  CHECK(found.kv->end() == 4);
  CHECK(f.cache.find(std::vector<token_id>{5}).kv == nullptr);
  CHECK(f.cache.find({}).kv == nullptr);
}

TEST_CASE("prefix cache: keeps what was used last, within its limit") {
  fixture f;
  for (token_id t = 1; t <= 4; ++t) f.keep({t, t});
  CHECK(f.cache.find(std::vector<token_id>{1}).length == 1);
  f.keep({5, 5});
  CHECK(f.cache.size() == 4);
  CHECK(f.cache.find(std::vector<token_id>{2}).length == 0);
  CHECK(f.cache.find(std::vector<token_id>{1}).length == 1);
  CHECK(f.books.used() == 8);
  f.cache.clear();
  CHECK(f.books.used() == 0);
}

TEST_CASE(
    "prefix cache: a longer sequence replaces its own beginning, and a beginning adds nothing") {
  fixture f;
  f.keep({1, 2}, {10});
  f.keep({1, 2, 3}, {10, 11});
  CHECK(f.cache.size() == 1);
  f.keep({1, 2}, {10, 12});
  CHECK(f.cache.size() == 1);
  CHECK(f.books.used() == 3);
  CHECK(sorted(f.cache.take_changes().added) == hashes{10, 11, 12});
  f.cache.evict_one();
  CHECK(sorted(f.cache.take_changes().dropped) == hashes{10, 11, 12});
}

TEST_CASE("prefix cache: hashes are told once while any entry has them, and what came and went in "
          "between isn't told") {
  fixture f;
  f.keep({1, 1}, {10, 11});
  CHECK(sorted(f.cache.take_changes().added) == hashes{10, 11});
  f.keep({1, 2}, {10, 12});
  auto changes = f.cache.take_changes();
  CHECK(changes.added == hashes{12});
  CHECK(changes.dropped.empty());
  f.cache.evict_one();
  changes = f.cache.take_changes();
  CHECK(changes.added.empty());
  CHECK(changes.dropped == hashes{11});
  f.keep({7, 7}, {77});
  f.cache.clear();
  changes = f.cache.take_changes();
  CHECK(changes.added.empty());
  CHECK(sorted(changes.dropped) == hashes{10, 12});
}

TEST_CASE("prefix cache: the sum of all changes is what the entries have, in any order") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  fixture f;
  std::set<std::uint64_t> told;
  for (int i = 0; i < 3000; ++i) {
    std::vector<token_id> tokens;
    hashes chain;
    for (auto n = 1 + random() % 6; n > 0; --n) {
      tokens.push_back(static_cast<token_id>(random() % 2));
      chain.push_back(tokens.size() * 100 + random() % 3);
    }
    if (random() % 5 != 0) f.keep(tokens, chain);
    if (random() % 4 == 0) f.cache.evict_one();
    if (random() % 3 == 0) {
      const auto changes = f.cache.take_changes();
      for (const auto h : changes.added) REQUIRE(told.insert(h).second);
      for (const auto h : changes.dropped) REQUIRE(told.erase(h) == 1);
    }
  }
  f.cache.clear();
  for (const auto h : f.cache.take_changes().dropped) REQUIRE(told.erase(h) == 1);
  CHECK(told.empty());
  CHECK(f.books.used() == 0);
}

TEST_CASE(
    "output predictor: learns, covers most answers, and never promises more than is allowed") {
  output_predictor p;
  CHECK(p.predict(10) == 10);
  CHECK(p.predict(100'000) == 256);
  std::mt19937 random(1);
  std::normal_distribution<double> lengths(1000, 100);
  for (int i = 0; i < 500; ++i) p.learn(static_cast<std::uint32_t>(lengths(random)));
  int covered = 0;
  for (int i = 0; i < 1000; ++i) covered += lengths(random) <= p.predict(100'000) ? 1 : 0;
  CHECK(covered > 850);
  CHECK(p.predict(100'000) < 1300);
  for (int i = 0; i < 500; ++i) p.learn(1);
  CHECK(p.predict(100'000) == output_predictor::tokens_min);
}

TEST_CASE("prefix cache: who has a scope of their own finds and hides nothing of others'") {
  // How it can fail: a tenant learns from the time of an answer what another has asked; an entry of
  // one makes way for the same tokens of another, who then computes them again.
  fixture f;
  f.keep({1, 2, 3, 4}, {10}, 7);
  const std::vector<token_id> wanted{1, 2, 3};
  CHECK(f.cache.find(wanted).kv == nullptr);
  CHECK(f.cache.find(wanted, 8).kv == nullptr);
  CHECK(f.cache.find(wanted, 7).length == 3);
  f.keep({1, 2}, {11}, 8);        // a beginning of the other's
  f.keep({1, 2, 3, 4, 5}, {12});  // longer than the others'
  CHECK(f.cache.size() == 3);
  CHECK(f.cache.find(wanted, 8).length == 2);
  CHECK(f.cache.find(wanted, 7).length == 3);
  f.keep({1, 2, 3, 4, 6}, {13}, 7);
  CHECK(f.cache.size() == 3);
}
