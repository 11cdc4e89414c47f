#include "config/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace troupe::config {

namespace {

/// Words longer than this are never slips of another word; it bounds the work on hostile files,
/// too.
constexpr std::size_t suggestible_chars_max = 64;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same(char a, char b) { return lower(a) == lower(b); }

/// Edit distance, blind to case, with transposition of neighbours as one step ("prot" for "port").
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = same(a[i - 1], b[j - 1]) ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + change});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string to_string(const location& where) {
  if (where.file.empty()) return "default";
  if (where.line == 0) return where.file;
  return fmt::format("{}:{}:{}", where.file, where.line, where.column);
}

std::string to_string(const problem& p) {
  return fmt::format("{}: {}", to_string(p.where), p.message);
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > suggestible_chars_max) return {};
  std::string best;
  auto best_distance = std::max<std::size_t>(1, std::min<std::size_t>(3, word.size() / 2)) + 1;
  for (const auto& candidate : candidates) {
    if (candidate.empty() || candidate.size() > suggestible_chars_max) continue;
    const auto d = edit_distance(word, candidate);
    // A distance as long as the word replaces all of it.
    if (d < best_distance && d < std::max(word.size(), candidate.size())) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

}  // namespace troupe::config
