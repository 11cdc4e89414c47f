#include "gpu/engine/logit_scan.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace troupe::engine {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Vectors by the extension that GCC and Clang share; every CPU of ours has registers of this size.
// Four of them at a time keep its units busy.
using floats = float __attribute__((vector_size(16)));
using ints = std::int32_t __attribute__((vector_size(16)));
constexpr std::size_t width = sizeof(floats) / sizeof(float);
constexpr std::size_t lanes = 4;

/// Floats are summed within a block only; the sums of blocks are doubles.
constexpr std::size_t block = 1024;

/// Calls visit(lane, vector) for all of `part`; what is missing at its end is `filler`.
template <class Visit>
inline void for_vectors(std::span<const float> part, float filler, Visit visit) {
  constexpr std::size_t stride = width * lanes;
  const auto visit_all = [&](const float* from) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      floats x;
      std::memcpy(&x, from + lane * width, sizeof(x));
      visit(lane, x);
    }
  };
  std::size_t i = 0;
  for (; i + stride <= part.size(); i += stride) visit_all(part.data() + i);
  if (i == part.size()) return;
  float rest[stride];
  std::fill_n(rest, stride, filler);
  std::copy(part.begin() + static_cast<std::ptrdiff_t>(i), part.end(), rest);
  visit_all(rest);
}

/// exp((logit - highest) / temperature), and 0 where that is negligible. 2^n · e^r with |r| ≤ ln 2
/// / 2, and e^r by its Taylor polynomial (error below 2e-7).
inline floats weights(floats logits, float highest, float temperature) {
  const floats exact = (logits - highest) / temperature;
  const ints negligible = exact < -negligible_below;
  const floats x = negligible ? floats{} : exact;
  constexpr float rounder = 12582912.0F;  // 1.5 · 2^23: adding it rounds to an integer
  const floats n = (x * 1.44269504F + rounder) - rounder;
  const floats r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
  const floats poly = 1.0F +
                      r * (1.0F +
                           r * (0.5F + r * (1.66666667e-1F +
                                            r * (4.16666667e-2F +
                                                 r * (8.33333333e-3F + r * 1.38888889e-3F)))));
  const ints exponent = (__builtin_convertvector(n, ints) + 127) << 23;
  floats scale;
  std::memcpy(&scale, &exponent, sizeof(scale));
  return negligible ? floats{} : poly * scale;
}

inline float weight(float logit, float highest, float temperature) {
  return weights(floats{logit, logit, logit, logit}, highest, temperature)[0];
}

double block_mass(std::span<const float> part, float highest, float temperature) {
  floats sums[lanes] = {};
  for_vectors(part, -infinity,
              [&](std::size_t lane, floats x) { sums[lane] += weights(x, highest, temperature); });
  const floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (double{sum[0]} + sum[1]) + (double{sum[2]} + sum[3]);
}

bool likelier(const std::pair<token_id, float>& a, const std::pair<token_id, float>& b) {
  return a.second != b.second ? a.second > b.second : a.first < b.first;
}

}  // namespace

logit_extent extent(std::span<const float> logits) {
  logit_extent out{-infinity, 0, true};
  bool numbers = true;
  for (std::size_t begin = 0; begin < logits.size(); begin += block) {
    const auto part = logits.subspan(begin, std::min(block, logits.size() - begin));
    floats highest[lanes];
    ints bad[lanes] = {};
    std::fill_n(highest, lanes, floats{-infinity, -infinity, -infinity, -infinity});
    for_vectors(part, -infinity, [&](std::size_t lane, floats x) {
      bad[lane] |= x != x;  // NOLINT(misc-redundant-expression): only NaN differs from itself
      highest[lane] = x > highest[lane] ? x : highest[lane];
    });
    float here = -infinity;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t i = 0; i < width; ++i) {
        here = std::max(here, highest[lane][i]);
        numbers = numbers && bad[lane][i] == 0;
      }
    }
    if (here <= out.highest) continue;
    out.highest = here;
    out.first = static_cast<token_id>(begin) +
                static_cast<token_id>(std::find(part.begin(), part.end(), here) - part.begin());
  }
  out.sane = numbers && out.highest < infinity && out.highest > -infinity;
  return out;
}

double mass(std::span<const float> logits, float highest, float temperature) {
  double sum = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += block)
    sum += block_mass(logits.subspan(begin, std::min(block, logits.size() - begin)), highest,
                      temperature);
  return sum;
}

token_id draw_by_mass(std::span<const float> logits, float highest, float temperature,
                      double uniform) {
  std::vector<double> blocks;
  double total = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += block) {
    blocks.push_back(block_mass(logits.subspan(begin, std::min(block, logits.size() - begin)),
                                highest, temperature));
    total += blocks.back();
  }
  const double target = uniform * total;
  double sum = 0;
  std::size_t heavy = 0;  // the block that passes the target, or, should rounding leave none, the
                          // last that weighs anything
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b] <= 0) continue;
    heavy = b;
    if (sum + blocks[b] > target) break;
    sum += blocks[b];
  }
  token_id last = 0;
  for (auto i = heavy * block; i < std::min(logits.size(), (heavy + 1) * block) && sum <= target;
       ++i) {
    const float w = weight(logits[i], highest, temperature);
    sum += w;
    if (w > 0) last = static_cast<token_id>(i);
  }
  return last;
}

void gather(std::span<const float> logits, float threshold,
            std::vector<std::pair<token_id, float>>& out) {
  out.clear();
  threshold = std::max(threshold, std::numeric_limits<float>::lowest());
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= threshold) out.emplace_back(static_cast<token_id>(i), logits[i]);
}

void sort_by_likelihood(std::vector<std::pair<token_id, float>>& candidates) {
  std::sort(candidates.begin(), candidates.end(), likelier);
}

void gather_highest(std::span<const float> logits, float highest, std::size_t count,
                    std::vector<std::pair<token_id, float>>& out) {
  for (float width = 4;; width *= 4) {
    const bool all = width > 1e6F;
    gather(logits, all ? -infinity : highest - width, out);
    if (out.size() >= count || all || out.size() == logits.size()) break;
  }
  if (out.size() > count) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
                     likelier);
    out.resize(count);
  }
  sort_by_likelihood(out);
}

}  // namespace troupe::engine
