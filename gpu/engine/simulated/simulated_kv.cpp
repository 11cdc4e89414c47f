#include "gpu/engine/simulated/simulated_kv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace troupe::engine::simulated {
namespace {

struct header {
  std::uint64_t magic = 0x31564B2D4D495354;  // "TSIM-KV1"
  std::uint64_t layout = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// Fills (or, with `check`, compares) a token's bytes behind its hashes.
template <class Visit>
bool each_filler(const token_kv& token, std::size_t bytes, Visit visit) {
  std::uint64_t state = token.hash;
  for (std::size_t done = 0; done < bytes; done += sizeof(state)) {
    state = mix(state);
    if (!visit(done, std::min(sizeof(state), bytes - done), state)) return false;
  }
  return true;
}

}  // namespace

std::uint64_t mix(std::uint64_t x) {  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

std::uint64_t extend_hash(std::uint64_t before, token_id token) {
  return mix(before ^ mix(static_cast<std::uint32_t>(token)));
}

std::size_t encoded_bytes(std::size_t tokens, std::uint32_t bytes_per_token) {
  return sizeof(header) + tokens * bytes_per_token;
}

void encode(std::span<const token_kv> tokens, position begin, std::uint64_t layout,
            std::uint32_t bytes_per_token, std::span<std::byte> out) {
  header h;
  h.layout = layout;
  h.begin = begin;
  h.end = begin + static_cast<position>(tokens.size());
  std::memcpy(out.data(), &h, sizeof(h));
  auto* at = out.data() + sizeof(h);
  for (const auto& token : tokens) {
    std::memcpy(at, &token, sizeof(token));
    each_filler(token, bytes_per_token - sizeof(token),
                [&](std::size_t offset, std::size_t n, std::uint64_t word) {
                  std::memcpy(at + sizeof(token) + offset, &word, n);
                  return true;
                });
    at += bytes_per_token;
  }
}

expected<std::vector<token_kv>> decode(std::span<const std::byte> in, position begin, position end,
                                       std::uint64_t layout, std::uint32_t bytes_per_token) {
  const auto refuse = [&](const char* what) {
    return error{"kv_import_failed",
                 fmt::format("KV for positions {} to {} was refused: {}", begin, end, what),
                 {}};
  };
  header h;
  if (begin >= end || in.size() != encoded_bytes(end - begin, bytes_per_token))
    return refuse("its size does not fit the range");
  const auto expected_magic = h.magic;
  std::memcpy(&h, in.data(), sizeof(h));
  if (h.magic != expected_magic) return refuse("it is not KV of a simulated engine");
  if (h.layout != layout) return refuse("it has another layout");
  if (h.begin != begin || h.end != end) return refuse("it is of another range");
  std::vector<token_kv> tokens(end - begin);
  const auto* at = in.data() + sizeof(h);
  for (std::size_t i = 0; i < tokens.size(); ++i, at += bytes_per_token) {
    auto& token = tokens[i];
    std::memcpy(&token, at, sizeof(token));
    if (i > 0 && token.before != tokens[i - 1].hash)
      return refuse("its tokens do not follow one another");
    const bool intact = each_filler(token, bytes_per_token - sizeof(token),
                                    [&](std::size_t offset, std::size_t n, std::uint64_t word) {
                                      return std::memcmp(at + sizeof(token) + offset, &word, n) ==
                                             0;
                                    });
    if (!intact) return refuse("its bytes are damaged");
  }
  return tokens;
}

}  // namespace troupe::engine::simulated
