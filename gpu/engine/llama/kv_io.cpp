// Export and import of a range of positions.
//
// llama.cpp can only write and read the state of a whole sequence, so a range goes through a
// scratch sequence, which costs no copy: it shares the cells. Of a sliding-window model llama.cpp
// leaves out positions that its window, counted from the sequence's last position, doesn't reach;
// so ranges are cut to where that can't happen, at fixed positions, so that both sides cut alike.

#include "gpu/engine/llama/kv_format.hpp"
#include "gpu/engine/llama/llama_runner.hpp"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <cstdint>

namespace troupe::engine {
namespace {

error export_failed(std::string why) {
  return {"kv_export_failed", "KV cannot be exported: " + std::move(why)};
}

error import_failed(std::string why) {
  return {"kv_import_failed", "KV cannot be imported: " + std::move(why)};
}

}  // namespace

/// Half a window suits all kinds: some count it to both sides, and chunks begin at multiples of it.
position llama_runner::next_cut(position at, position end) const {
  if (window_ == 0) return end;
  const auto step = std::max<position>(window_ / 2, 1);
  return std::min(end, (at / step + 1) * step);
}

std::size_t llama_runner::kv_export_bytes(position tokens) const {
  std::size_t blobs = 1;
  if (window_ > 0) blobs = std::size_t{tokens} / std::max<position>(window_ / 2, 1) + 2;
  return sizeof(kv_header) + blobs * blob_fixed_bytes_ + std::size_t{tokens} * blob_token_bytes_;
}

expected<std::size_t> llama_runner::kv_export(slot_id slot, position begin, position end,
                                              std::span<std::byte> out) {
  if (!info_.ranges) return export_failed(info_.no_ranges_reason);
  if (begin >= end || slot < 0 || slot >= slots_) return export_failed("the range is empty");
  std::size_t written = sizeof(kv_header);
  for (auto at = begin; at < end;) {
    const auto cut = next_cut(at, end);
    const auto size = blob_bytes(cut - at);
    if (out.size() < written + size)
      return export_failed(fmt::format("{} bytes are too few", out.size()));
    llama_memory_seq_cp(memory_, slot, scratch(), static_cast<llama_pos>(at),
                        static_cast<llama_pos>(cut));
    const bool whole = llama_memory_seq_pos_min(memory_, scratch()) == static_cast<llama_pos>(at) &&
                       llama_memory_seq_pos_max(memory_, scratch()) ==
                           static_cast<llama_pos>(cut - 1);
    // Asking for the size first would walk all cells once more; a wrong one shows in the result.
    const auto got = !whole ? 0
                            : llama_state_seq_get_data(
                                  context_.get(),
                                  reinterpret_cast<std::uint8_t*>(out.data() + written), size,
                                  scratch());
    llama_memory_seq_rm(memory_, scratch(), -1, -1);
    if (got != size)
      return export_failed(
          fmt::format("positions {} to {} of slot {} are not all there", at, cut, slot));
    written += size;
    at = cut;
  }
  seal(out, info_.kv_layout, begin, end, written - sizeof(kv_header));
  return written;
}

expected<void> llama_runner::kv_import(slot_id slot, position begin, position end,
                                       std::span<const std::byte> in) {
  if (!info_.ranges) return import_failed(info_.no_ranges_reason);
  if (begin >= end || end > cells_ || slot < 0 || slot >= slots_)
    return import_failed("the range is empty or longer than the memory");
  std::size_t bytes = 0;
  for (auto at = begin; at < end; at = next_cut(at, end))
    bytes += blob_bytes(next_cut(at, end) - at);
  auto payload = unseal(in, info_.kv_layout, begin, end, bytes);
  if (!payload) return payload.error();
  start_over_when_empty();
  std::size_t read = 0;
  for (auto at = begin; at < end;) {
    const auto cut = next_cut(at, end);
    const auto size = blob_bytes(cut - at);
    if (auto done = import_blob(slot, at, cut, payload->subspan(read, size)); !done) {
      kv_remove(slot, begin, at);
      return done;
    }
    read += size;
    at = cut;
  }
  return ok;
}

/// A blob into the scratch sequence, and from there, without a copy, to its slot.
expected<void> llama_runner::import_blob(slot_id slot, position begin, position end,
                                         std::span<const std::byte> blob) {
  const auto got = llama_state_seq_set_data(
      context_.get(), reinterpret_cast<const std::uint8_t*>(blob.data()), blob.size(), scratch());
  const auto b = static_cast<llama_pos>(begin);
  const auto e = static_cast<llama_pos>(end);
  const bool whole = got == blob.size() && llama_memory_seq_pos_min(memory_, scratch()) == b &&
                     llama_memory_seq_pos_max(memory_, scratch()) == e - 1;
  if (whole) {
    llama_memory_seq_cp(memory_, scratch(), slot, b, e);
    if (shadows_) llama_memory_seq_cp(memory_, scratch(), shadow(slot), b, e);
  }
  llama_memory_seq_rm(memory_, scratch(), -1, -1);
  removed_ = true;
  if (whole) return ok;
  return import_failed(got == 0 ? fmt::format("no {} cells are free for it", end - begin)
                                : "it holds other positions than it should");
}

}  // namespace troupe::engine
