#include "apps/bench/histogram.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using troupe::bench::histogram;

TEST_CASE("an empty histogram says nothing", "[bench]") {
  const histogram h;
  CHECK(h.count() == 0);
  CHECK(h.percentile(50) == 0);
  CHECK(h.max() == 0);
  CHECK(h.min() == 0);
  CHECK(h.mean() == 0);
}

TEST_CASE("small values are exact", "[bench]") {
  histogram h;
  for (std::uint64_t v = 1; v <= 1000; ++v) h.record(v);
  CHECK(h.percentile(0) == 1);
  CHECK(h.percentile(50) == 500);
  CHECK(h.percentile(90) == 900);
  CHECK(h.percentile(99.9) == 999);
  CHECK(h.percentile(99.91) == 1000);
  CHECK(h.percentile(100) == 1000);
  CHECK(h.mean() == 500.5);
}

TEST_CASE("a percentile is the nearest rank, never less than asked", "[bench]") {
  histogram h;
  h.record(10);
  CHECK(h.percentile(1) == 10);
  CHECK(h.percentile(99.9) == 10);
  h.record(20);
  CHECK(h.percentile(50) == 10);
  CHECK(h.percentile(51) == 20);
}

TEST_CASE("extremes", "[bench]") {
  histogram h;
  h.record(0);
  h.record(~std::uint64_t{0});
  CHECK(h.percentile(50) == 0);
  CHECK(h.percentile(100) == ~std::uint64_t{0});
  CHECK(h.max() == ~std::uint64_t{0});
}

TEST_CASE("percentiles stay within the error for any distribution", "[bench]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 20; ++round) {
    histogram h;
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 5'000; ++i) {
      const auto value = random() >> (random() % 64);
      values.push_back(value);
      h.record(value);
    }
    std::sort(values.begin(), values.end());
    for (const double percent : {1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
      const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * 5'000 - 1e-9));
      const auto exact = values[rank - 1];
      const auto found = h.percentile(percent);
      INFO(percent << " % of " << exact);
      CHECK(found >= exact);
      CHECK(static_cast<double>(found - exact) <=
            static_cast<double>(exact) * histogram::relative_error_max);
    }
    CHECK(h.percentile(100) == values.back());
  }
}
