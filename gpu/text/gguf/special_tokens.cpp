#include "gpu/text/gguf/special_tokens.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>
#include <utility>

namespace troupe::gguf {
namespace {

/// How many more to pass before a cut is tried again.
constexpr std::size_t specials_between_tries = 16;

}  // namespace

special_tokens::special_tokens(std::vector<special> all) : all_(std::move(all)) {
  std::erase_if(all_, [](const special& s) { return s.text.empty(); });
  std::set<std::size_t, std::greater<>> lengths;
  for (const auto& s : all_) {
    by_text_.emplace(s.text, &s);
    lengths.insert(s.text.size());
    first_bytes_.set(static_cast<unsigned char>(s.text.front()));
  }
  lengths_.assign(lengths.begin(), lengths.end());
}

std::size_t special_tokens::longest_at(std::string_view text, std::size_t at) const {
  if (!first_bytes_.test(static_cast<unsigned char>(text[at]))) return 0;
  for (const auto length : lengths_)
    if (length <= text.size() - at && by_text_.contains(text.substr(at, length))) return length;
  return 0;
}

/// llama.cpp looks for the longest tokens first, and for each from the left: nothing can take the
/// place of one that no other reaches into from the left and no longer one begins within. Of those
/// that are as long, its own text again (in a run of spaces) comes later.
bool special_tokens::is_certain(std::string_view text, std::size_t from, std::size_t at,
                                std::size_t length) const {
  const auto& found = *by_text_.at(text.substr(at, length));
  if (found.takes_space_before && std::isspace(static_cast<unsigned char>(text[at - 1])) != 0)
    return false;
  const auto reach = lengths_.front() - 1;
  for (auto before = at - std::min(at - from, reach); before < at; ++before)
    if (before + longest_at(text, before) > at) return false;
  for (auto within = at + 1; within < at + length; ++within) {
    const auto other = longest_at(text, within);
    if (other > length || (other == length && text.substr(within, other) != found.text))
      return false;
  }
  return true;
}

std::optional<std::size_t> special_tokens::part_end(std::string_view text, std::size_t from) const {
  std::size_t specials = 0;
  auto next_try = specials_per_part;
  for (auto at = from; at < text.size();) {
    const auto length = longest_at(text, at);
    if (length == 0) {
      ++at;
      continue;
    }
    if (specials >= next_try) {
      if (is_certain(text, from, at, length)) return at;
      if (specials >= specials_per_part_max) return std::nullopt;
      next_try = specials + specials_between_tries;
    }
    ++specials;
    at += length;
  }
  return text.size();
}

}  // namespace troupe::gguf
