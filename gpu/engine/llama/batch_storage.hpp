#pragma once

#include "gpu/engine/llama/llama_runner.hpp"

#include <llama.h>

#include <span>
#include <vector>

namespace troupe::engine {

/// The arrays that llama.cpp reads a batch from, used again by each pass.
struct llama_runner::batch_storage {
  explicit batch_storage(std::size_t capacity)
      : tokens(capacity), positions(capacity), counts(capacity, 1), slots(capacity),
        slot_pointers(capacity), wanted(capacity) {
    for (std::size_t i = 0; i < capacity; ++i) slot_pointers[i] = &slots[i];
  }

  std::size_t capacity() const { return tokens.size(); }

  void fill(std::span<const batch_token> batch) {
    size = batch.size();
    for (std::size_t i = 0; i < size; ++i) {
      tokens[i] = batch[i].token;
      positions[i] = static_cast<llama_pos>(batch[i].pos);
      slots[i] = batch[i].slot;
      wanted[i] = batch[i].want_logits ? 1 : 0;
    }
  }

  llama_batch view() {
    llama_batch out{};
    out.n_tokens = static_cast<std::int32_t>(size);
    out.token = tokens.data();
    out.pos = positions.data();
    out.n_seq_id = counts.data();
    out.seq_id = slot_pointers.data();
    out.logits = wanted.data();
    return out;
  }

  std::size_t size = 0;
  std::vector<llama_token> tokens;
  std::vector<llama_pos> positions;
  std::vector<std::int32_t> counts;
  std::vector<llama_seq_id> slots;
  std::vector<llama_seq_id*> slot_pointers;
  std::vector<std::int8_t> wanted;
};

}  // namespace troupe::engine
