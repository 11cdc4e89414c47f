#pragma once

#include "gpu/engine/runner.hpp"
#include "gpu/text/gguf/gguf_file.hpp"
#include "messages/base/expected.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct llama_context;
struct llama_memory_i;

namespace troupe::engine {

/// llama.cpp's limit of sequences in a context.
inline constexpr slot_id llama_sequences_max = 256;

struct llama_options {
  std::string path;                 ///< of the GGUF file
  std::string name;                 ///< as clients call the model; empty: the file's own
  position context_tokens = 0;      ///< longest sequence; 0: what the model was trained for
  std::uint32_t cells = 16384;      ///< KV cells in all
  slot_id slots = 40;               ///< sequences that there must be: running and cached
  slot_id spare_slots = 0;          ///< and further ones, as many of them as there is room for
  std::uint32_t step_tokens = 512;  ///< most tokens of one forward pass
  std::uint32_t threads = 0;        ///< that compute; 0: one per core
  std::int32_t gpu_layers = 0;
  std::function<bool(float)> progress;  ///< while weights are read: 0 to 1; false gives up
};

/// Sequences that a model offers at most: sliding-window models need two of llama.cpp's for each.
slot_id llama_slots_max(bool sliding_window);

/// Runs a GGUF model in this process.
///
/// All sequences share one buffer of cells (`kv_unified`): without it, copying a range of positions
/// between sequences aborts. Flash attention is always on: it keeps V in rows, so a range of
/// positions is a few large copies, and it adds up a sequence's positions in their order and not in
/// SIMD groups that depend on where the cells lie, so that a batch's other sequences and the
/// cache's gaps change less of the rounding. When nothing is held any more, cells are taken from
/// the beginning again, so that a job on an empty engine computes the very same every time.
///
/// Sliding-window models keep all positions (`swa_full`). Even so llama.cpp takes back cells that
/// left the window when it needs some, unless a second sequence holds them: here each slot has a
/// shadow sequence that does.
///
/// Threads: as `model_runner` says.
class llama_runner final : public model_runner {
 public:
  /// Loads the model and makes its context. Errors: those of `gguf::open`, `model_unsupported` (no
  /// decoder, an encoder), `context_too_long` (the model was trained for less), `too_many_slots`,
  /// `out_of_memory`, `model_failed` (its first pass did not come out).
  static expected<std::unique_ptr<llama_runner>> load(const llama_options& options);

  ~llama_runner() override;
  llama_runner(const llama_runner&) = delete;
  llama_runner& operator=(const llama_runner&) = delete;

  const model_info& info() const override { return info_; }
  slot_id slots() const override { return slots_; }
  std::uint32_t cells() const override { return cells_; }

  forward_status forward(std::span<const batch_token> batch) override;
  std::span<const float> logits(std::size_t batch_index) override;

  void kv_copy(slot_id from, slot_id to, position begin, position end) override;
  void kv_remove(slot_id slot, position begin, position end) override;
  std::size_t kv_export_bytes(position tokens) const override;
  expected<std::size_t> kv_export(slot_id slot, position begin, position end,
                                  std::span<std::byte> out) override;
  /// Besides the contract: nothing of a piece that is refused stays behind.
  expected<void> kv_import(slot_id slot, position begin, position end,
                           std::span<const std::byte> in) override;

  /// `used_cells` is exact: from the size that llama.cpp's state would have. A slot's range is what
  /// its lowest and highest positions are; gaps between them (out-of-order imports) don't show.
  runner_truth truth() override;

  std::uint64_t ticks() const override { return ticks_.load(std::memory_order_relaxed); }
  /// llama.cpp asks between nodes that the CPU computes, and nobody during what a GPU does.
  bool ticks_inside() const override { return ticks_inside_; }
  void request_abort() override { abort_.store(true, std::memory_order_relaxed); }

 private:
  struct context_deleter {
    void operator()(llama_context* context) const;
  };
  using context_ptr = std::unique_ptr<llama_context, context_deleter>;
  struct batch_storage;

  llama_runner(gguf::model_ptr model, context_ptr context, const llama_options& options);

  static bool on_node(void* self);
  expected<void> calibrate();
  void find_ranges();
  /// A sequence of llama.cpp's own number: not of a slot.
  slot_id scratch() const { return sequences_ - 1; }
  slot_id shadow(slot_id slot) const { return slots_ + slot; }
  void forget(std::span<const batch_token> batch);
  void start_over_when_empty();
  position next_cut(position at, position end) const;
  std::size_t blob_bytes(position tokens) const {
    return blob_fixed_bytes_ + std::size_t{tokens} * blob_token_bytes_;
  }
  expected<void> import_blob(slot_id slot, position begin, position end,
                             std::span<const std::byte> blob);

  gguf::model_ptr model_;
  context_ptr context_;
  llama_memory_i* memory_ = nullptr;
  model_info info_;
  slot_id slots_ = 0;
  slot_id sequences_ = 0;  ///< of the context: slots, their shadows, scratch
  std::uint32_t cells_ = 0;
  std::uint32_t window_ = 0;  ///< of sliding-window attention; 0: none
  bool shadows_ = false;
  bool removed_ = true;  ///< something was removed since the cells were last seen in use

  // Sizes of llama.cpp's state, measured at load.
  std::size_t blob_fixed_bytes_ = 0;
  std::size_t blob_token_bytes_ = 0;
  std::size_t state_empty_bytes_ = 0;
  std::size_t state_fixed_bytes_ = 0;
  std::size_t state_cell_bytes_ = 0;    ///< of a cell that no sequence holds
  std::size_t state_member_bytes_ = 0;  ///< of one sequence that holds a cell

  std::unique_ptr<batch_storage> batch_;
  std::atomic<std::uint64_t> ticks_{0};
  bool ticks_inside_ = true;
  std::atomic<bool> abort_{false};
};

}  // namespace troupe::engine
