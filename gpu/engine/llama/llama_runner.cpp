// Forward passes and the sequences' bookkeeping.

#include "gpu/engine/llama/llama_runner.hpp"

#include "gpu/engine/llama/batch_storage.hpp"

#include <llama.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace troupe::engine {

void llama_runner::context_deleter::operator()(llama_context* context) const {
  llama_free(context);
}

slot_id llama_slots_max(bool sliding_window) {
  return sliding_window ? (llama_sequences_max - 1) / 2 : llama_sequences_max - 1;
}

llama_runner::~llama_runner() = default;

// -- computing ----------------------------------------------------------------

/// Between any two nodes of the graph; on the thread that computes.
bool llama_runner::on_node(void* self) {
  auto& runner = *static_cast<llama_runner*>(self);
  // Of a pass on a GPU only the nodes that are left to the CPU come by here, all at its beginning:
  // more ticks than passes would say that a pass which stands has none.
  if (runner.ticks_inside_) runner.ticks_.fetch_add(1, std::memory_order_relaxed);
  return runner.abort_.load(std::memory_order_relaxed);
}

forward_status llama_runner::forward(std::span<const batch_token> batch) {
  if (batch.empty()) return forward_status::done;
  if (batch.size() > batch_->capacity()) return forward_status::failed;
  start_over_when_empty();
  batch_->fill(batch);
  int status = 0;
  try {
    status = llama_decode(context_.get(), batch_->view());
  } catch (const std::exception&) {
    status = -1;
  }
  ticks_.fetch_add(1, std::memory_order_relaxed);
  // Whoever asked during the pass wanted this one to end, and it has.
  abort_.store(false, std::memory_order_relaxed);
  if (status != 0) {
    // What of the batch was computed before it stopped is still there.
    if (status != 1) forget(batch);
    if (status == 1) return forward_status::no_cells;
    return status == 2 ? forward_status::aborted : forward_status::failed;
  }
  if (shadows_) {
    for (std::size_t i = 0; i < batch.size();) {
      auto next = i + 1;
      while (next < batch.size() && batch[next].slot == batch[i].slot &&
             batch[next].pos == batch[next - 1].pos + 1)
        ++next;
      llama_memory_seq_cp(memory_, batch[i].slot, shadow(batch[i].slot),
                          static_cast<llama_pos>(batch[i].pos),
                          static_cast<llama_pos>(batch[next - 1].pos + 1));
      i = next;
    }
  }
  return forward_status::done;
}

void llama_runner::forget(std::span<const batch_token> batch) {
  for (const auto& t : batch) kv_remove(t.slot, t.pos, t.pos + 1);
}

/// llama.cpp searches for cells from where it found the last ones.
void llama_runner::start_over_when_empty() {
  if (!std::exchange(removed_, false)) return;
  for (slot_id s = 0; s < sequences_; ++s)
    if (llama_memory_seq_pos_max(memory_, s) >= 0) return;
  llama_memory_clear(memory_, false);
}

std::span<const float> llama_runner::logits(std::size_t batch_index) {
  const auto* values = llama_get_logits_ith(context_.get(), static_cast<std::int32_t>(batch_index));
  return values == nullptr ? std::span<const float>() : std::span(values, info_.vocabulary);
}

// -- sequences ----------------------------------------------------------------

void llama_runner::kv_copy(slot_id from, slot_id to, position begin, position end) {
  if (from == to || begin >= end) return;
  const auto copy = [&](llama_pos b, llama_pos e) {
    if (b >= e) return;
    llama_memory_seq_cp(memory_, from, to, b, e);
    if (shadows_) llama_memory_seq_cp(memory_, from, shadow(to), b, e);
  };
  const auto b = static_cast<llama_pos>(begin);
  const auto e = static_cast<llama_pos>(end);
  const auto first = llama_memory_seq_pos_min(memory_, to);
  const auto last = llama_memory_seq_pos_max(memory_, to);
  if (last < 0) return copy(b, e);
  // What a sequence holds already must not be added again: llama.cpp would count it twice.
  copy(b, std::min(e, first));
  copy(std::max(b, last + 1), e);
}

void llama_runner::kv_remove(slot_id slot, position begin, position end) {
  if (begin >= end) return;
  const auto b = static_cast<llama_pos>(begin);
  // Beyond what a sequence can hold means all of it; recurrent models can remove nothing else.
  const auto e = end > cells_ ? -1 : static_cast<llama_pos>(end);
  llama_memory_seq_rm(memory_, slot, b, e);
  if (shadows_) llama_memory_seq_rm(memory_, shadow(slot), b, e);
  removed_ = true;
}

runner_truth llama_runner::truth() {
  runner_truth out;
  std::size_t members = 0;
  for (slot_id s = 0; s < sequences_; ++s) {
    const auto first = llama_memory_seq_pos_min(memory_, s);
    const auto last = llama_memory_seq_pos_max(memory_, s);
    if (s < slots_) out.slots.push_back({s, first, last});
    if (last < 0) continue;
    auto tokens = static_cast<std::size_t>(last) - static_cast<std::size_t>(first) + 1;
    // Exact even when there are gaps; a window would hide some.
    if (window_ == 0 && info_.ranges)
      tokens = (llama_state_seq_get_size(context_.get(), s) - blob_fixed_bytes_) /
               blob_token_bytes_;
    members += tokens;
  }
  const auto size = llama_state_get_size(context_.get());
  if (state_cell_bytes_ == 0) {  // a model without ranges: nothing is shared
    out.used_cells = static_cast<std::uint32_t>(members);
    return out;
  }
  if (size <= state_empty_bytes_) return out;
  const auto other = state_fixed_bytes_ + members * state_member_bytes_;
  out.used_cells = size <= other ? 0
                                 : static_cast<std::uint32_t>((size - other) / state_cell_bytes_);
  return out;
}

}  // namespace troupe::engine
