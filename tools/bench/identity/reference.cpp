#include "tools/bench/identity/reference.hpp"

#include "tools/bench/decode_rig.hpp"

#include <llama.h>

#include <algorithm>

namespace troupe::bench {

reference::reference(const engine::llama_options& options)
    : model_(nullptr, llama_model_free), context_(nullptr, llama_free),
      step_tokens_(options.step_tokens) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  model_.reset(llama_model_load_from_file(options.path.c_str(), llama_model_default_params()));
  if (!model_) give_up("llama.cpp cannot load " + options.path);
  auto params = llama_context_default_params();
  params.n_ctx = options.cells;
  params.n_batch = options.step_tokens;
  params.n_ubatch = options.step_tokens;
  params.n_threads = static_cast<std::int32_t>(options.threads);
  params.n_threads_batch = static_cast<std::int32_t>(options.threads);
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.swa_full = true;
  params.kv_unified = true;
  context_.reset(llama_init_from_model(model_.get(), params));
  if (!context_) give_up("llama.cpp cannot make a context");
}

reference::~reference() = default;

std::vector<engine::token_id> reference::greedy(const std::vector<engine::token_id>& prompt,
                                                std::size_t answer_tokens) {
  llama_memory_clear(llama_get_memory(context_.get()), false);
  auto tokens = prompt;
  const auto vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
  std::size_t at = 0;
  const auto compute = [&](std::size_t count) {
    if (llama_decode(context_.get(), llama_batch_get_one(tokens.data() + at,
                                                         static_cast<std::int32_t>(count))) != 0)
      give_up("llama.cpp cannot compute");
    at += count;
  };
  while (at + 1 < prompt.size())
    compute(std::min<std::size_t>(step_tokens_, prompt.size() - 1 - at));
  for (std::size_t i = 0; i < answer_tokens; ++i) {
    compute(1);
    const auto* logits = llama_get_logits_ith(context_.get(), -1);
    tokens.push_back(
        static_cast<engine::token_id>(std::max_element(logits, logits + vocabulary) - logits));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

std::vector<float> reference::gaps(const std::vector<engine::token_id>& prompt,
                                   const std::vector<engine::token_id>& answer) {
  // Few positions at a time: each has a logit for every token of the vocabulary.
  constexpr std::size_t chunk = 32;
  llama_memory_clear(llama_get_memory(context_.get()), false);
  auto tokens = prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const auto vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
  auto batch = llama_batch_init(chunk, 0, 1);
  std::vector<float> out;
  for (std::size_t at = 0; at + 1 < tokens.size();) {
    batch.n_tokens = 0;
    for (; batch.n_tokens < static_cast<int>(chunk) && at + 1 < tokens.size(); ++at) {
      const auto i = batch.n_tokens++;
      batch.token[i] = tokens[at];
      batch.pos[i] = static_cast<llama_pos>(at);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = at + 1 >= prompt.size() ? 1 : 0;
    }
    if (llama_decode(context_.get(), batch) != 0) give_up("llama.cpp cannot compute");
    for (int i = 0; i < batch.n_tokens; ++i) {
      if (batch.logits[i] == 0) continue;
      const auto* logits = llama_get_logits_ith(context_.get(), i);
      const auto next = tokens[static_cast<std::size_t>(batch.pos[i]) + 1];
      out.push_back(*std::max_element(logits, logits + vocabulary) - logits[next]);
    }
  }
  llama_batch_free(batch);
  return out;
}

}  // namespace troupe::bench
