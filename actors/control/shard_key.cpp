#include "actors/control/shard_key.hpp"

#include <xxhash.h>

namespace troupe::control {

key64 shard_key(std::string_view model, std::string_view session,
                std::span<const std::uint64_t> chain, std::uint64_t otherwise) {
  const auto seed = XXH3_64bits(model.data(), model.size());
  if (!session.empty()) return XXH3_64bits_withSeed(session.data(), session.size(), seed);
  const auto what = chain.empty() ? otherwise : chain.front();
  return XXH3_64bits_withSeed(&what, sizeof what, seed);
}

}  // namespace troupe::control
