#include "messages/base/non_negative_fit.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

using troupe::non_negative_fit;

namespace {

template <std::size_t N>
struct observation {
  std::array<double, N> x;
  double y;
};

template <std::size_t N>
double residual(const std::vector<observation<N>>& all, const std::array<double, N>& c) {
  double sum = 0;
  for (const auto& o : all) {
    double error = o.y;
    for (std::size_t i = 0; i < N; ++i) error -= c[i] * o.x[i];
    sum += error * error;
  }
  return sum;
}

}  // namespace

TEST_CASE("non-negative fit: finds the coefficients that were used") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> any(0, 1);
  for (int round = 0; round < 50; ++round) {
    // Magnitudes as far apart as seconds per prompt and seconds per token squared.
    const std::array<double, 4> truth{any(random), any(random) * 1e-3, any(random) * 1e-6, 0};
    non_negative_fit<4> fit;
    for (int i = 0; i < 40; ++i) {
      const std::array<double, 4> x{1, any(random) * 1e3, any(random) * 1e6, any(random)};
      double y = 0;
      for (std::size_t k = 0; k < 4; ++k) y += truth[k] * x[k];
      fit.add(x, y, 1 / (y * y));
    }
    const auto found = fit.solve();
    for (std::size_t k = 0; k < 4; ++k)
      CHECK(found[k] == Approx(truth[k]).epsilon(1e-4).margin(1e-9));
  }
}

TEST_CASE("non-negative fit: no step to any side is better") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<double> any(0, 1);
  for (int round = 0; round < 200; ++round) {
    std::vector<observation<3>> all;
    non_negative_fit<3> fit;
    for (int i = 0; i < 12; ++i) {
      observation<3> o{{any(random), any(random), any(random)}, any(random)};
      fit.add(o.x, o.y);
      all.push_back(o);
    }
    const auto found = fit.solve();
    const auto best = residual(all, found);
    for (std::size_t k = 0; k < 3; ++k) {
      CHECK(found[k] >= 0);
      for (const double step : {1e-3, -1e-3, 0.3, -0.3}) {
        auto other = found;
        other[k] = std::max(0.0, other[k] + step);
        CHECK(residual(all, other) >= best - 1e-9);
      }
    }
  }
}

TEST_CASE("non-negative fit: features that explain the same, and nothing at all") {
  non_negative_fit<2> fit;
  CHECK(fit.solve() == std::array<double, 2>{0, 0});
  for (int i = 1; i < 10; ++i) fit.add({1.0 * i, 2.0 * i}, 4.0 * i);
  const auto found = fit.solve();
  CHECK(found[0] + 2 * found[1] == Approx(4));
  CHECK((found[0] == 0 || found[1] == 0));

  non_negative_fit<2> negative;
  for (int i = 1; i < 10; ++i) negative.add({1.0 * i, 1}, -1.0 * i);
  CHECK(negative.solve() == std::array<double, 2>{0, 0});
}

TEST_CASE("non-negative fit: what is faded counts less") {
  non_negative_fit<1> fit;
  for (int i = 0; i < 100; ++i) fit.add({1}, 10);
  fit.fade(0);
  fit.add({1}, 2);
  CHECK(fit.solve()[0] == Approx(2));
}
