#pragma once

#include "gpu/engine/llama/llama_runner.hpp"
#include "gpu/engine/make_engine.hpp"
#include "gpu/text/text_model.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

using engine::job_id;
using engine::token_id;

[[noreturn]] inline void give_up(const std::string& why) {
  fmt::print(stderr, "error: {}\n", why);
  std::exit(2);
}

/// Memory for a piece, where no transport is.
class heap_piece final : public engine::piece_buffer {
 public:
  explicit heap_piece(std::size_t size) : bytes_(size) {}
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// An engine over llama.cpp and what it says.
class rig final : public engine::event_sink {
 public:
  rig(const engine::llama_options& model, const engine::batching_limits& limits,
      std::shared_ptr<const text::text_model> text) {
    auto runner = engine::llama_runner::load(model);
    if (!runner) give_up(runner.error().message);
    engine_ = engine::make_batching_engine(std::move(*runner), std::move(text), limits);
  }

  engine::engine& machine() { return *engine_; }
  engine::step_report step() { return engine_->step(*this); }

  std::map<job_id, std::vector<token_id>> ids;
  std::map<job_id, std::string> texts;
  std::map<job_id, engine::position> import_ready;
  std::map<job_id, engine::position> cached;
  std::deque<engine::kv_piece> pieces;
  std::size_t done = 0;
  std::size_t sampled = 0;

  void on_import_ready(job_id job, engine::position keep) override { import_ready[job] = keep; }
  std::unique_ptr<engine::piece_buffer> acquire_piece_buffer(job_id, std::size_t size) override {
    return std::make_unique<heap_piece>(size);
  }
  void on_piece(engine::kv_piece piece) override { pieces.push_back(std::move(piece)); }
  void on_prefill_done(job_id, engine::position, std::chrono::microseconds,
                       std::chrono::microseconds) override {
    ++done;
  }
  void on_adopted(job_id) override {}
  void on_started(job_id job, engine::position found) override { cached[job] = found; }
  void on_delta(engine::choice_delta delta) override {
    sampled += delta.ids.size();
    auto& all = ids[delta.job];
    all.insert(all.end(), delta.ids.begin(), delta.ids.end());
    texts[delta.job] += delta.text;
  }
  void on_done(job_id, std::uint32_t, std::chrono::microseconds) override { ++done; }
  void on_failed(engine::job_failure failure) override {
    give_up(fmt::format("job {} failed: {}", failure.job, failure.why.message));
  }
  void on_cancelled(job_id) override { ++done; }
  void on_leaving(job_id, std::vector<token_id>, std::uint32_t) override {}
  void on_stays(job_id, troupe::error) override {}
  void on_prefixes(std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {}

 private:
  std::unique_ptr<engine::engine> engine_;
};

inline engine::generate_spec greedy_job(job_id id, std::vector<token_id> prompt,
                                        std::uint32_t answer_tokens) {
  engine::generate_spec spec;
  spec.id = id;
  spec.tokens = std::move(prompt);
  spec.max_tokens = answer_tokens;
  spec.how.temperature = 0;
  spec.ignore_end = true;
  return spec;
}

/// A text of English words, the same for the same seed, as tokens of the model.
inline std::vector<token_id> words_as_tokens(const text::text_model& text, std::size_t count,
                                             std::uint64_t seed) {
  static constexpr const char* words[] = {
      "the",     "river",  "was",      "older", "than",  "town",    "and",   "its",     "bridges",
      "people",  "walked", "along",    "every", "night", "with",    "lamps", "because", "of",
      "stories", "that",   "children", "told",  "about", "a",       "quiet", "machine", "which",
      "counted", "stars",  "under",    "water", "until", "morning", "came",  "then",    "nobody"};
  std::mt19937_64 random(seed);
  std::vector<token_id> out;
  while (out.size() < count) {
    std::string sentence;
    for (int i = 0; i < 12; ++i) sentence += fmt::format(" {}", words[random() % std::size(words)]);
    auto tokens = text.tokenize(sentence + ".", out.empty(), false);
    if (!tokens) give_up(tokens.error().message);
    out.insert(out.end(), tokens->begin(), tokens->end());
  }
  out.resize(count);
  return out;
}

}  // namespace troupe::bench
