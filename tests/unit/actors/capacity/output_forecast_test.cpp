#include "actors/capacity/output_forecast.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace troupe::capacity;

TEST_CASE("length quantiles: as those of a sorted list, within a bucket's width") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    std::lognormal_distribution<double> lengths(1 + round * 0.5, 0.8);
    length_quantiles q;
    std::vector<std::uint32_t> seen;
    for (int i = 0; i < 60; ++i) {
      const auto n = static_cast<std::uint32_t>(std::clamp(lengths(random), 1.0, 1e6));
      q.learn(n);
      seen.push_back(n);
    }
    // With weights that fall by 1 % a step the exact quantile lies between these.
    std::sort(seen.begin(), seen.end());
    const double ratio = std::exp2(1.0 / length_quantiles::buckets_per_doubling);
    for (const double share : {0.5, 0.9}) {
      const auto low = seen[static_cast<std::size_t>(60 * (share - 0.3))];
      const auto high =
          seen[std::min<std::size_t>(59, static_cast<std::size_t>(60 * (share + 0.3)))];
      CHECK(q.quantile(share) >= low);
      CHECK(q.quantile(share) <= std::ceil(high * ratio));
    }
  }
}

TEST_CASE("length quantiles: exact where all are alike, and at both ends") {
  for (const std::uint32_t n : {1U, 2U, 3U, 7U, 64U, 300U, 1'000U, 1U << 20U}) {
    length_quantiles q;
    for (int i = 0; i < 20; ++i) q.learn(n);
    CHECK(q.quantile(0.9) >= n);
    CHECK(q.quantile(0.9) <= n * 1.19 + 1);
    CHECK(q.quantile(0.5) == q.quantile(0.9));
  }
  length_quantiles q;
  CHECK(q.quantile(0.5) == 0);
  q.learn(0);
  CHECK(q.quantile(0.5) == 1);
  q.learn(UINT32_MAX);
  CHECK(q.quantile(1) == length_quantiles::length_max);
}

TEST_CASE("length quantiles: what was long ago is forgotten, however much it was") {
  length_quantiles q;
  for (int i = 0; i < 100'000; ++i) q.learn(1'000);
  for (int i = 0; i < 300; ++i) q.learn(10);
  CHECK(q.quantile(0.9) < 20);
  CHECK(q.learnt() == 100'300);
}

TEST_CASE("output forecast: the tenant's own answers, else the model's, else a guess") {
  output_forecast f;
  CHECK(f.predict("a", "m").from == output_forecast::basis::nothing);
  CHECK(f.predict("a", "m").p90 == output_forecast::tokens_at_start);
  for (int i = 0; i < 50; ++i) f.learn("a", "m", 20);
  CHECK(f.predict("a", "m").from == output_forecast::basis::tenant);
  CHECK(f.predict("a", "m").p90 <= 24);
  CHECK(f.predict("new", "m").from == output_forecast::basis::model);
  CHECK(f.predict("", "m").from == output_forecast::basis::model);
  CHECK(f.predict("a", "other").from == output_forecast::basis::nothing);
  // A few answers of a tenant's own are not believed yet.
  for (std::uint64_t i = 1; i < output_forecast::answers_min; ++i) f.learn("b", "m", 5'000);
  CHECK(f.predict("b", "m").from == output_forecast::basis::model);
  f.learn("b", "m", 5'000);
  CHECK(f.predict("b", "m").from == output_forecast::basis::tenant);
  CHECK(f.predict("b", "m").p50 >= 5'000);
  CHECK(f.predict("a", "m").p90 <= 24);
}

TEST_CASE("output forecast: a tenant's name never runs into the model's") {
  output_forecast f;
  for (int i = 0; i < 20; ++i) f.learn("ab", "c", 1'000);
  CHECK(f.predict("a", "bc").from == output_forecast::basis::nothing);
}

TEST_CASE("output forecast: what is reserved is never more than the request may have") {
  output_forecast f;
  for (int i = 0; i < 9; ++i) f.learn("t", "m", 100);
  f.learn("t", "m", 1'000);
  CHECK(f.reserve("t", "m", 16) == 16);
  CHECK(f.reserve("t", "m", 100'000) == f.predict("t", "m").p90);
  CHECK(f.reserve("t", "m", 0) == f.predict("t", "m").p90);
  CHECK(f.reserve("x", "unknown", 0) == output_forecast::tokens_at_start);
}

TEST_CASE("output forecast: answers cut at their limit say that the others are longer, not that "
          "answers are short") {
  output_forecast f;
  for (int i = 0; i < 50; ++i) f.learn("t", "m", 500);
  const auto before = f.predict("t", "m").p90;
  for (int i = 0; i < 500; ++i) f.learn("t", "m", 1, true);
  CHECK(f.predict("t", "m").p90 == before);
  for (int i = 0; i < 500; ++i) f.learn("t", "m", 4'000, true);
  CHECK(f.predict("t", "m").p90 >= 4'000);
}

TEST_CASE("output forecast: memory is bounded, and the one used last is kept") {
  output_forecast f;
  for (int round = 0; round < 10; ++round) f.learn("keeps", "m", 77);
  for (std::size_t i = 0; i < 3 * output_forecast::series_max; ++i) {
    f.learn("t" + std::to_string(i), "m", 10);
    if (i % 100 == 0) f.learn("keeps", "m", 77);
  }
  CHECK(f.series() == output_forecast::series_max);
  CHECK(f.predict("keeps", "m").from == output_forecast::basis::tenant);
  CHECK(f.predict("keeps", "m").p50 >= 77);
  CHECK(f.predict("t0", "m").from == output_forecast::basis::model);
}

TEST_CASE("output forecast: nine in ten answers fit into what is reserved") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::lognormal_distribution<double> lengths(5, 0.7);
  output_forecast f;
  int fit = 0;
  constexpr int answers = 4'000;
  for (int i = 0; i < answers; ++i) {
    const auto n = static_cast<std::uint32_t>(1 + lengths(random));
    fit += n <= f.reserve("t", "m", 0) ? 1 : 0;
    f.learn("t", "m", n);
  }
  CHECK(fit > answers * 0.86);
  CHECK(fit < answers * 0.96);
}
