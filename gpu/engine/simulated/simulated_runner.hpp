#pragma once

#include "gpu/engine/runner.hpp"
#include "gpu/text/text_model.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::engine {

/// Of every simulated engine, whatever its time model.
inline constexpr const char* simulated_device_class = "simulated";

enum class simulated_fault : std::uint8_t {
  none,
  slow,     ///< the pass takes `slow_factor` times as long
  hang,     ///< the pass never ends, shows no progress and hears no abort
  crash,    ///< the process ends
  garbage,  ///< logits are no numbers
};

/// Errors: `unknown_fault`, naming the possible ones.
expected<simulated_fault> parse_fault(const std::string& name);

struct simulated_options {
  std::string model = "simulated";
  position context_tokens = 8192;
  slot_id slots = 64;
  std::uint32_t cells = 16384;
  std::uint32_t vocabulary = 260;
  std::vector<token_id>
      output_tokens;  ///< what answers consist of; empty: lower-case letters and spaces as bytes
  std::vector<token_id> end_tokens;
  std::uint32_t mean_answer_tokens = 0;  ///< an end token comes after so many on average; 0: never
  bool ranges = true;  ///< false: like a recurrent model, sequences are copied and removed whole
  std::uint32_t kv_bytes_per_token = 64;  ///< at least 16

  double prefill_tokens_per_second = 0;  ///< 0: no time at all
  double decode_step_us = 0;             ///< of a pass that has any decode token
  double decode_us_per_stream = 0;

  simulated_fault fault = simulated_fault::none;
  double fault_probability_per_step = 0;
  /// The process ends when this is computed, wherever it stands in a sequence; empty: never.
  std::vector<token_id> crash_on;
  double slow_factor = 10;
  std::uint64_t seed = 1;  ///< of the faults; answers depend on the prefix only
  /// Says of each pass which fault it has, instead of the draw. Empty: the draw does.
  std::function<simulated_fault()> choose_fault;

  /// The outside world. `sleep` gets slices of at most `slice`, between which aborts are heard and
  /// progress is shown.
  std::chrono::microseconds slice{1'000};
  std::function<std::chrono::steady_clock::time_point()>
      now;                                              ///< empty: std::chrono::steady_clock::now
  std::function<void(std::chrono::nanoseconds)> sleep;  ///< empty: std::this_thread::sleep_for
  std::function<void()> crash;                          ///< empty: std::abort
};

/// A model made of arithmetic. The next token is a function of the tokens before it, and so is
/// every byte of KV: wrong or missing KV is noticed by the next pass (which then fails) and by
/// imports. It keeps its own books of cells, independent of the engine's ledger.
class simulated_runner final : public model_runner {
 public:
  explicit simulated_runner(simulated_options options);

  const model_info& info() const override { return info_; }
  slot_id slots() const override { return options_.slots; }
  std::uint32_t cells() const override { return options_.cells; }

  forward_status forward(std::span<const batch_token> batch) override;
  std::span<const float> logits(std::size_t batch_index) override;
  token_id shortcut_token(std::size_t batch_index) override;

  void kv_copy(slot_id from, slot_id to, position begin, position end) override;
  void kv_remove(slot_id slot, position begin, position end) override;
  std::size_t kv_export_bytes(position tokens) const override;
  expected<std::size_t> kv_export(slot_id slot, position begin, position end,
                                  std::span<std::byte> out) override;
  expected<void> kv_import(slot_id slot, position begin, position end,
                           std::span<const std::byte> in) override;

  runner_truth truth() override;
  std::uint64_t ticks() const override { return ticks_.load(std::memory_order_relaxed); }
  bool ticks_inside() const override { return true; }
  void request_abort() override { abort_.store(true); }

  /// Why the last pass failed; for tests and logs.
  const std::string& last_error() const { return last_error_; }
  /// Parts of sequences that were copied or removed though the model has no ranges.
  std::uint64_t forbidden_moves() const { return forbidden_moves_; }

 private:
  struct cell {
    std::uint64_t before = 0;  ///< hash of the tokens before this one
    std::uint64_t hash = 0;    ///< of the tokens up to and including this one
    std::uint32_t sequences = 0;
    token_id token = -1;  ///< -1: it came as KV
  };
  using cell_index = std::uint32_t;
  static constexpr cell_index none = UINT32_MAX;
  struct sequence {
    std::vector<cell_index> cells;
    position verified = 0;  ///< [0, verified) is known to be one chain of hashes
  };

  bool store(const batch_token& token);
  bool verify(sequence& s, position end);
  bool is_poison(const sequence& s) const;
  cell_index take_cell(std::uint64_t before, std::uint64_t hash, token_id token);
  void let_go(cell_index c);
  simulated_fault next_fault();
  bool spend(std::chrono::nanoseconds time);
  token_id token_after(std::uint64_t hash) const;

  simulated_options options_;
  model_info info_;
  std::vector<cell> cells_;
  std::vector<cell_index> free_;
  std::vector<sequence> sequences_;
  std::vector<std::uint64_t> batch_hashes_;
  std::vector<float> logits_;
  bool garbage_ = false;
  std::uint64_t forbidden_moves_ = 0;
  std::uint64_t passes_ = 0;
  std::string last_error_;
  std::atomic<std::uint64_t> ticks_{0};
  std::atomic<bool> abort_{false};
};

/// Tokens of a text model that make readable answers: printable, whole UTF-8, no end tokens. At
/// most `answer_vocabulary_max`.
std::vector<token_id> readable_tokens(const text::text_model& model);
inline constexpr std::size_t answer_vocabulary_max = 4096;

}  // namespace troupe::engine
