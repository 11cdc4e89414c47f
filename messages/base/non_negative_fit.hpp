#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>

namespace troupe {

/// Non-negative least squares, y ≈ Σ cᵢ·xᵢ with all cᵢ ≥ 0, for a handful of features: keeps sums
/// of products only. The solution is that of ordinary least squares on the features that it uses,
/// so the best of all sets of features whose own solution is positive is it, exactly. With N
/// features that is 2ᴺ small systems: N is at most 8. A value type; pure.
template <std::size_t N>
class non_negative_fit {
  static_assert(N > 0 && N <= 8);

 public:
  using row = std::array<double, N>;

  /// One observation. With the weight 1 / y² relative errors count.
  void add(const row& x, double y, double weight = 1) {
    for (std::size_t i = 0; i < N; ++i) {
      for (std::size_t k = 0; k < N; ++k) products_[i][k] += weight * x[i] * x[k];
      targets_[i] += weight * x[i] * y;
    }
  }

  /// What was seen so far counts this much from now on.
  void fade(double factor) {
    for (auto& r : products_)
      for (auto& v : r) v *= factor;
    for (auto& v : targets_) v *= factor;
  }

  /// Where several features explain the same, the fewest and first ones do. All zero when nothing
  /// was seen.
  row solve() const {
    row best{};
    double best_gain = 0;
    for (unsigned set = 1; set < (1U << N); ++set) {
      const auto found = solve_on(set);
      if (!found) continue;
      double gain = 0;
      for (std::size_t i = 0; i < N; ++i) gain += (*found)[i] * targets_[i];
      // More features always explain a little more: only a real gain makes them worth it.
      if (gain <= best_gain * (1 + worthwhile)) continue;
      best = *found;
      best_gain = gain;
    }
    return best;
  }

 private:
  /// A pivot this small, of one, says that a feature is a combination of others.
  static constexpr double singular = 1e-9;
  static constexpr double worthwhile = 1e-12;

  /// Cholesky on the features in `set`, scaled to a diagonal of ones; empty when they depend on
  /// each other or a coefficient is negative.
  std::optional<row> solve_on(unsigned set) const {
    std::array<std::size_t, N> used{};
    std::size_t n = 0;
    for (std::size_t i = 0; i < N; ++i) {
      if ((set & (1U << i)) == 0) continue;
      if (!(products_[i][i] > 0)) return std::nullopt;
      used[n++] = i;
    }
    row scale{};
    for (std::size_t i = 0; i < n; ++i) scale[i] = 1 / std::sqrt(products_[used[i]][used[i]]);
    std::array<row, N> factor{};
    row half{};
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k <= i; ++k) {
        double sum = products_[used[i]][used[k]] * scale[i] * scale[k];
        for (std::size_t m = 0; m < k; ++m) sum -= factor[i][m] * factor[k][m];
        if (i != k) {
          factor[i][k] = sum / factor[k][k];
          continue;
        }
        if (!(sum > singular)) return std::nullopt;
        factor[i][i] = std::sqrt(sum);
      }
      double sum = targets_[used[i]] * scale[i];
      for (std::size_t m = 0; m < i; ++m) sum -= factor[i][m] * half[m];
      half[i] = sum / factor[i][i];
    }
    row solved{}, out{};
    for (std::size_t i = n; i-- > 0;) {
      double sum = half[i];
      for (std::size_t m = i + 1; m < n; ++m) sum -= factor[m][i] * solved[m];
      solved[i] = sum / factor[i][i];
      out[used[i]] = solved[i] * scale[i];
      if (!(out[used[i]] >= 0) || !std::isfinite(out[used[i]])) return std::nullopt;
    }
    return out;
  }

  std::array<row, N> products_{};
  row targets_{};
};

}  // namespace troupe
