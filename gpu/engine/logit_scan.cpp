#include "gpu/engine/logit_scan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::engine {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

bool likelier(const std::pair<token_id, float>& a, const std::pair<token_id, float>& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; }

}  // namespace

logit_extent extent(std::span<const float> logits) {
  // Independent lanes, so that the compiler may use vector registers without reordering floats.
  constexpr std::size_t lanes = 16;
  float highest[lanes];
  std::fill_n(highest, lanes, -infinity);
  int bad[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= logits.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float x = logits[i + lane];
      bad[lane] |= static_cast<int>(!(x < infinity));
      highest[lane] = x > highest[lane] ? x : highest[lane];
    }
  }
  for (; i < logits.size(); ++i) {
    bad[0] |= static_cast<int>(!(logits[i] < infinity));
    highest[0] = std::max(highest[0], logits[i]);
  }
  logit_extent out{-infinity, true};
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    out.highest = std::max(out.highest, highest[lane]);
    if (bad[lane] != 0) out.sane = false;
  }
  if (!(out.highest > -infinity)) out.sane = false;
  return out;
}

token_id first_equal(std::span<const float> logits, float highest) {
  return static_cast<token_id>(std::find(logits.begin(), logits.end(), highest) - logits.begin());
}

double mass(std::span<const float> logits, float highest, float temperature) {
  const float floor = highest - negligible_below * temperature;
  double sum = 0;
  for (const float x : logits)
    if (x >= floor) sum += std::exp((x - highest) / temperature);
  return sum;
}

token_id at_mass(std::span<const float> logits, float highest, float temperature, double target) {
  const float floor = highest - negligible_below * temperature;
  double sum = 0;
  token_id last = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] >= floor)) continue;
    sum += std::exp((logits[i] - highest) / temperature);
    last = static_cast<token_id>(i);
    if (sum > target) break;
  }
  return last;
}

void gather(std::span<const float> logits, float threshold, std::vector<std::pair<token_id, float>>& out) {
  out.clear();
  threshold = std::max(threshold, std::numeric_limits<float>::lowest());
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= threshold) out.emplace_back(static_cast<token_id>(i), logits[i]);
}

void sort_by_likelihood(std::vector<std::pair<token_id, float>>& candidates) { std::sort(candidates.begin(), candidates.end(), likelier); }

void gather_highest(std::span<const float> logits, float highest, std::size_t count, std::vector<std::pair<token_id, float>>& out) {
  for (float width = 4;; width *= 4) {
    const bool all = width > 1e6F;
    gather(logits, all ? -infinity : highest - width, out);
    if (out.size() >= count || all || out.size() == logits.size()) break;
  }
  if (out.size() > count) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), likelier);
    out.resize(count);
  }
  sort_by_likelihood(out);
}

}  // namespace troupe::engine
