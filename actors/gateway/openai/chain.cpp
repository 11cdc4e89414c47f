#include "actors/gateway/openai/chain.hpp"

#include <xxhash.h>

#include <algorithm>

namespace troupe::gateway::openai {

void chain_builder::block(const char* bytes) {
  hash_ = XXH3_64bits_withSeed(bytes, chain_block_bytes, hash_);
  chain_.push_back(hash_);
}

void chain_builder::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (buffer_.empty() && bytes.size() >= chain_block_bytes) {
      block(bytes.data());
      bytes.remove_prefix(chain_block_bytes);
      continue;
    }
    const auto n = std::min(bytes.size(), chain_block_bytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes.remove_prefix(n);
    if (buffer_.size() == chain_block_bytes) {
      block(buffer_.data());
      buffer_.clear();
    }
  }
}

void chain_builder::end_field() {
  // 0xFF never occurs in UTF-8.
  constexpr char mark = '\xff';
  add({&mark, 1});
}

}  // namespace troupe::gateway::openai
