#pragma once

#include "messages/prompt_chain.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::gateway::openai {

using msg::chain_block_bytes;

/// The byte-block chain of a prompt: XXH3 over each block, seeded with the hash of the block
/// before. Two prompts with a common beginning have a common beginning of their chains. Not
/// thread-safe.
class chain_builder {
 public:
  /// `key`: the cluster's (and tenant's), so that nobody outside can compute or compare chains.
  explicit chain_builder(std::uint64_t key) : hash_(key) { buffer_.reserve(chain_block_bytes); }

  void add(std::string_view bytes);
  /// Ends a field: "ab" + "c" and "a" + "bc" differ.
  void end_field();
  std::vector<std::uint64_t> take() && { return std::move(chain_); }

 private:
  void block(const char* bytes);

  std::uint64_t hash_;
  std::vector<char> buffer_;
  std::vector<std::uint64_t> chain_;
};

}  // namespace troupe::gateway::openai
