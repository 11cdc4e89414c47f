#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::engine {

/// A sequence slot of the runner: streams, cached prefixes and scratch.
using slot_id = std::int32_t;

/// One token of a forward pass.
struct batch_token {
  slot_id slot = 0;
  token_id token = 0;
  position pos = 0;
  bool want_logits = false;
};

enum class forward_status : std::uint8_t { done, aborted, no_cells, failed };

/// What the runner itself says about its memory, for the checker.
struct runner_truth {
  std::uint32_t used_cells = 0;
  struct range {
    slot_id slot = 0;
    std::int64_t first = -1;  ///< lowest position held, -1: none
    std::int64_t last = -1;
  };
  std::vector<range> slots;
};

/// Runs a model: the part of an engine that differs between llama.cpp and the simulation. All
/// scheduling, KV ownership and sampling order is above it.
///
/// One thread only (the engine thread), between steps, except `ticks` and `request_abort`.
class model_runner {
 public:
  virtual ~model_runner() = default;

  virtual const model_info& info() const = 0;
  virtual slot_id slots() const = 0;  ///< sequences [0, slots()) that the caller may use, at most
                                      ///< 256; scratch of the runner's own is not among them
  virtual std::uint32_t cells() const = 0;  ///< KV cells in all

  /// Computes the tokens. On `aborted`, `no_cells` and `failed` the KV of these tokens is not there
  /// afterwards. A batch may hold no token that wants logits (a prefill chunk).
  virtual forward_status forward(std::span<const batch_token> batch) = 0;
  /// Logits of the i-th token of the last batch (one that wanted them): `vocabulary` floats, valid
  /// until the next forward.
  virtual std::span<const float> logits(std::size_t batch_index) = 0;
  /// Greedy choice without a sweep over logits where the runner knows it (the simulation); -1: use
  /// logits.
  virtual token_id shortcut_token(std::size_t batch_index) {
    (void)batch_index;
    return -1;
  }

  virtual void kv_copy(slot_id from, slot_id to, position begin, position end) = 0;
  virtual void kv_remove(slot_id slot, position begin, position end) = 0;
  /// Upper bound of the bytes that `kv_export` writes for so many tokens.
  virtual std::size_t kv_export_bytes(position tokens) const = 0;
  /// Serialises [begin, end) of a slot. Returns the bytes written. Errors: `kv_export_failed`.
  virtual expected<std::size_t> kv_export(slot_id slot, position begin, position end,
                                          std::span<std::byte> out) = 0;
  /// Errors: `kv_import_failed` (malformed, wrong layout, no cells).
  virtual expected<void> kv_import(slot_id slot, position begin, position end,
                                   std::span<const std::byte> in) = 0;

  virtual runner_truth truth() = 0;

  /// Progress inside a forward pass. Any thread.
  virtual std::uint64_t ticks() const = 0;
  /// Whether `ticks` counts inside a pass from the first one on, several times a second on any
  /// machine that can be used; false: at its end only.
  virtual bool ticks_inside() const { return false; }
  /// Interrupts the running forward pass soon. Any thread. A request that comes too late may abort
  /// the next pass instead: callers just compute that one again.
  virtual void request_abort() = 0;
};

/// Limits of the batching, from the cluster file.
struct batching_limits {
  std::uint32_t slots = 8;          ///< jobs that run at once
  std::uint32_t kv_tokens = 16384;  ///< KV budget
  std::uint32_t step_tokens =
      512;  ///< tokens of one forward pass: decode first, prefill chunks fill the rest
  std::uint32_t cached_prefixes = 32;  ///< sequences kept for reuse
  std::size_t kv_io_bytes_per_step = 32U
                                     << 20U;  ///< exports and imports between two forward passes
  bool prefix_reuse = true;
  /// Kept for probes, on top of `kv_tokens` and `slots`, so that no load delays one; 0: probes have
  /// no place of their own.
  std::uint32_t probe_cells = 0;
};

/// What a probe needs at most: its prompt and one token.
inline constexpr std::uint32_t probe_cells_needed = 16;

}  // namespace troupe::engine
