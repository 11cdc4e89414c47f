#pragma once

#include "gpu/engine/llama/llama_runner.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::engine::testing {

inline llama_options tiny_options() {
  llama_options options;
  options.path = TROUPE_TINY_GGUF;
  options.name = "tiny";
  options.cells = 2048;
  options.slots = 8;
  options.step_tokens = 128;
  options.threads = 2;
  return options;
}

inline std::unique_ptr<llama_runner> load(const llama_options& options) {
  auto runner = llama_runner::load(options);
  if (!runner) FAIL(runner.error().code << ": " << runner.error().message);
  return std::move(*runner);
}

/// False, having said so, when the real model is not there.
inline bool have_gemma() {
  if (std::filesystem::exists(TROUPE_GEMMA_GGUF)) return true;
  std::cout << "skipped: the model " << TROUPE_GEMMA_GGUF
            << " is not there (tools/setup fetches it)\n";
  return false;
}

/// Ordinary tokens, the same for the same seed.
inline std::vector<token_id> some_tokens(std::size_t count, const model_info& info,
                                         std::uint64_t seed = 1) {
  std::vector<token_id> out;
  auto x = seed * 0x9E3779B97F4A7C15ULL;
  for (std::size_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    out.push_back(static_cast<token_id>(300 + (x >> 33U) % (info.vocabulary - 300)));
  }
  return out;
}

inline std::vector<batch_token> chunk(slot_id slot, std::span<const token_id> tokens,
                                      position begin, position end, bool logits_of_last = false) {
  std::vector<batch_token> out;
  for (auto p = begin; p < end; ++p)
    out.push_back({slot, tokens[p], p, logits_of_last && p + 1 == end});
  return out;
}

/// Computes tokens [begin, end) in chunks.
inline void prefill(llama_runner& runner, slot_id slot, std::span<const token_id> tokens,
                    position begin, position end, position chunk_tokens = 128) {
  for (auto at = begin; at < end; at += chunk_tokens)
    REQUIRE(runner.forward(chunk(slot, tokens, at, std::min(at + chunk_tokens, end))) ==
            forward_status::done);
}

inline token_id greedy(std::span<const float> logits) {
  return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// The last token of the prompt, then `count` greedy ones; what came before must be there.
inline std::vector<token_id> continue_greedily(llama_runner& runner, slot_id slot,
                                               std::vector<token_id> tokens, std::size_t count) {
  std::vector<token_id> out;
  for (std::size_t i = 0; i < count; ++i) {
    const auto p = static_cast<position>(tokens.size() - 1);
    REQUIRE(runner.forward(chunk(slot, tokens, p, p + 1, true)) == forward_status::done);
    out.push_back(greedy(runner.logits(0)));
    tokens.push_back(out.back());
  }
  return out;
}

inline void clear(llama_runner& runner, slot_id slot) { runner.kv_remove(slot, 0, runner.cells()); }

inline std::vector<std::byte> exported(llama_runner& runner, slot_id slot, position begin,
                                       position end) {
  std::vector<std::byte> out(runner.kv_export_bytes(end - begin));
  auto size = runner.kv_export(slot, begin, end, out);
  if (!size) FAIL(size.error().message);
  REQUIRE(*size <= out.size());
  out.resize(*size);
  return out;
}

/// Local continuation against one whose KV went to another runner in pieces that end at `cuts`.
inline void check_handover(const llama_options& options, position prompt,
                           const std::vector<position>& cuts, std::size_t answer) {
  auto local = load(options);
  const auto tokens = some_tokens(prompt, local->info());
  prefill(*local, 0, tokens, 0, prompt - 1, options.step_tokens);
  const auto expected = continue_greedily(*local, 0, tokens, answer);

  auto sender = load(options);
  auto receiver = load(options);
  prefill(*sender, 2, tokens, 0, prompt - 1, options.step_tokens);
  position at = 0;
  for (const auto cut : cuts) {
    const auto piece = exported(*sender, 2, at, cut);
    auto done = receiver->kv_import(1, at, cut, piece);
    if (!done) FAIL(done.error().message);
    at = cut;
  }
  REQUIRE(at == prompt - 1);
  CHECK(sender->truth().used_cells == prompt - 1);  // exporting costs no cells
  CHECK(receiver->truth().used_cells == prompt - 1);
  CHECK(receiver->truth().slots[1].first == 0);
  CHECK(receiver->truth().slots[1].last == static_cast<std::int64_t>(prompt) - 2);
  CHECK(continue_greedily(*receiver, 1, tokens, answer) == expected);
}

}  // namespace troupe::engine::testing
