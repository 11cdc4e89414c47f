#include "apps/bench/prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>

namespace troupe::bench {

namespace {

/// Long enough that two cuts of it rarely overlap by much, short enough for the processor's cache
/// to help.
constexpr std::size_t text_bytes = 1U << 20U;

constexpr std::string_view words[] = {
    "the",    "river",  "of",    "time",   "and",   "a",      "small", "house", "in",     "winter",
    "where",  "people", "would", "often",  "meet",  "to",     "speak", "about", "their",  "work",
    "with",   "great",  "care",  "for",    "every", "detail", "that",  "could", "be",     "seen",
    "from",   "above",  "light", "stone",  "paper", "garden", "music", "water", "letter", "cloud",
    "summer", "window", "table", "market", "road",  "story",  "never", "again"};

/// Spreads keys that follow one another (SplitMix64's finaliser).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

constexpr std::uint64_t prefix_keys = 1ULL << 60U;
constexpr std::uint64_t block_keys = 2ULL << 60U;

}  // namespace

prompt_maker::prompt_maker(std::uint64_t seed, std::uint32_t shared_prefix_bytes,
                           std::uint32_t block_bytes)
    : seed_(seed), shared_prefix_bytes_(shared_prefix_bytes),
      block_bytes_(std::max<std::uint32_t>(1, block_bytes)) {
  std::mt19937_64 random{seed};
  text_.reserve(text_bytes + 16);
  while (text_.size() < text_bytes) {
    text_ += words[random() % std::size(words)];
    text_ += ' ';
  }
}

// Begins with the key, scrambled one to one, so that different keys soon differ.
void prompt_maker::append(std::string& out, std::uint64_t key, std::size_t bytes) const {
  const auto end = out.size() + bytes;
  out += fmt::format("[{:016x}] ", mix(key));
  auto at = static_cast<std::size_t>(mix(seed_ ^ mix(key)) % text_.size());
  while (out.size() < end) {
    const auto piece = std::min(end - out.size(), text_.size() - at);
    out.append(text_, at, piece);
    at = 0;
  }
  out.resize(end);
}

std::string prompt_maker::make(const planned_request& request) const {
  std::string out;
  out.reserve(request.prompt_bytes + 32U);
  if (!request.blocks.empty()) {
    for (std::size_t i = 0; i < request.blocks.size() && out.size() < request.prompt_bytes; ++i)
      append(out, block_keys | request.blocks[i],
             std::min<std::size_t>(block_bytes_, request.prompt_bytes - out.size()));
  } else if (shared_prefix_bytes_ > 0) {
    append(out, prefix_keys | request.prefix, std::min(shared_prefix_bytes_, request.prompt_bytes));
  }
  if (out.size() < request.prompt_bytes)
    append(out, request.index, request.prompt_bytes - out.size());
  return out;
}

}  // namespace troupe::bench
