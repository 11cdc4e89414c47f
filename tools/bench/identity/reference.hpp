#pragma once

#include "gpu/engine/llama/llama_runner.hpp"

#include <memory>
#include <vector>

struct llama_context;
struct llama_model;

namespace troupe::bench {

/// llama.cpp called directly, by its C interface and nothing else: what every other way is compared
/// with.
class reference {
 public:
  /// Same cells, chunks, threads and attention as the engines.
  explicit reference(const engine::llama_options& options);
  ~reference();

  /// From an empty cache: all but the last token in chunks of `step_tokens`, then one at a time.
  std::vector<engine::token_id> greedy(const std::vector<engine::token_id>& prompt,
                                       std::size_t answer_tokens);
  /// For each token of an answer: what it lacks to the best one, in logits, in a forward pass over
  /// prompt and answer.
  std::vector<float> gaps(const std::vector<engine::token_id>& prompt,
                          const std::vector<engine::token_id>& answer);

 private:
  std::unique_ptr<llama_model, void (*)(llama_model*)> model_;
  std::unique_ptr<llama_context, void (*)(llama_context*)> context_;
  std::uint32_t step_tokens_;
};

}  // namespace troupe::bench
