#include "actors/router/heavy_keys.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>

using troupe::router::heavy_keys;

TEST_CASE("while there is room, weights are exact") {
  heavy_keys h{4};
  h.add(1, 2);
  h.add(2, 1);
  h.add(3, 5);
  h.add(1, 4);
  h.add(4, 0);
  h.add(4, -1);
  const auto all = h.above(0);
  REQUIRE(all.size() == 3);
  CHECK(all[0].key == 1);
  CHECK(all[0].weight == 6);
  CHECK(all[0].error == 0);
  CHECK(all[1].key == 3);
  CHECK(all[2].key == 2);
  CHECK(h.above(5).size() == 1);
  h.scale(0.5);
  CHECK(h.above(0)[0].weight == 3);
}

TEST_CASE("whoever has more than its share of the counters is among them, and is not taken for "
          "much more or less than it has") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  constexpr std::size_t counters = 32;
  heavy_keys h{counters};
  std::map<std::uint64_t, double> truth;
  double total = 0;
  for (int i = 0; i < 20'000; ++i) {
    // Half of all to a few, the rest to keys that come once.
    const std::uint64_t key = random() % 2 == 0 ? random() % 8 : 1'000 + random();
    const double weight = 1 + random() % 9;
    h.add(key, weight);
    truth[key] += weight;
    total += weight;
  }
  CHECK(h.size() == counters);
  const auto all = h.above(0);
  std::map<std::uint64_t, heavy_keys::counter> found;
  for (const auto& c : all) found[c.key] = c;
  for (std::uint64_t key = 0; key < 8; ++key) {
    INFO("key " << key);
    REQUIRE(truth[key] > total / counters);
    REQUIRE(found.contains(key));
    CHECK(found[key].weight >= truth[key]);
    CHECK(found[key].certain() <= truth[key]);
    CHECK(found[key].error <= total / counters);
  }
  // What certainly stands out are those, and nobody else.
  for (const auto& c : h.above(total / counters)) CHECK(c.key < 8);
}
