#include "gpu/engine/batching/composition.hpp"

#include <algorithm>

namespace troupe::engine {

std::vector<batch_share> compose_batch(std::span<const sequence_work> works,
                                       std::uint32_t step_tokens, std::uint64_t rotation) {
  std::vector<batch_share> batch;
  std::vector<std::size_t> decoding;
  for (std::size_t i = 0; i < works.size(); ++i)
    if (works[i].prefill == 0) decoding.push_back(i);
  auto room = step_tokens;
  if (decoding.size() > room) {
    std::rotate(decoding.begin(),
                decoding.begin() + static_cast<std::ptrdiff_t>(rotation * room % decoding.size()),
                decoding.end());
    decoding.resize(room);
    std::sort(decoding.begin(), decoding.end());
  }
  for (const auto i : decoding) batch.push_back({i, 1, true});
  room -= static_cast<std::uint32_t>(decoding.size());
  for (std::size_t i = 0; i < works.size() && room > 0; ++i) {
    if (works[i].prefill == 0) continue;
    const auto tokens = std::min(works[i].prefill, room);
    batch.push_back({i, tokens, false});
    room -= tokens;
  }
  return batch;
}

}  // namespace troupe::engine
