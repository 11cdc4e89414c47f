// KV pieces on their way out (prefill jobs) and in (generate jobs), between two passes and under a
// byte budget.

#include "gpu/engine/batching/batching_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::engine {

/// At least one piece each step, however large, so that a small budget slows transfers and never
/// stops them.
bool batching_engine::io_budget_allows(std::size_t bytes) const {
  const auto spent = report_.exported_bytes + report_.imported_bytes;
  return spent == 0 || spent + bytes <= limits_.kv_io_bytes_per_step;
}

// -- out ----------------------------------------------------------------------

/// Null: its KV can leave.
const char* batching_engine::why_it_stays(const job& j) {
  if (!j.generate) return "it samples nothing here";
  if (j.choices.size() != 1) return "it has several choices, which share the prompt's KV";
  if (j.state != job_state::running || (!j.base && !j.choices.front().kv))
    return "it has no KV here now";
  if (j.awaits_imports()) return "its own KV is still on its way here";
  return nullptr;
}

/// Between two steps a stream's KV is complete but for its last token: just what a prefill job
/// gives out. If something of it lacks (a recompute under way), that is computed as a prefill's is.
void batching_engine::become_prefill(job& j) {
  auto& c = j.choices.front();
  j.prompt.insert(j.prompt.end(), c.ids.begin() + static_cast<std::ptrdiff_t>(j.answer_in_prompt),
                  c.ids.end());
  if (c.kv) j.base = std::move(c.kv);
  j.choices.clear();
  j.answer_in_prompt = 0;
  j.generate = false;
  j.prefill_here = true;
  j.arrived.clear();
  j.base_missing = j.base_size() - j.base->end();
  j.prompt_in = j.base_missing == 0;
  j.cached = j.base->end();
  j.queued = j.computed = {};
}

void batching_engine::deliver_pieces() {
  lacks_buffers_ = false;
  for (auto& j : running_) {
    while (j->state == job_state::running && j->deliver_from && deliver_piece(*j)) {
    }
  }
}

/// Exports the next piece of what is computed and granted. False: nothing (more) can go now.
bool batching_engine::deliver_piece(job& j) {
  if (j.delivered >= j.base_size()) {
    tell_cost(j);
    sink_->on_prefill_done(j.id, j.cached, j.queued, j.computed);
    if (j.prompt_in) keep_in_cache(std::move(*j.base), {j.prompt.begin(), j.prompt.end() - 1}, j);
    end(j);
    return false;
  }
  if (j.base->end() <= j.delivered) return false;
  const auto tokens = std::min(j.base->end() - j.delivered, piece_tokens_max_);
  const auto size = runner_->kv_export_bytes(tokens);
  if (!io_budget_allows(size)) return false;
  kv_piece piece;
  piece.job = j.id;
  piece.begin = j.delivered;
  piece.end = j.delivered + tokens;
  piece.buffer = sink_->acquire_piece_buffer(j.id, size);
  if (!piece.buffer) {
    lacks_buffers_ = true;
    return false;
  }
  auto out = piece.buffer->bytes();
  if (out.size() < size) {
    fail(j,
         {"kv_export_failed",
          fmt::format("a piece needs {} bytes, the transport's buffer has {}", size, out.size()),
          {}},
         true);
    return false;
  }
  sink_->on_work({&j.id, 1});
  const auto start = options_.now();
  auto written = runner_->kv_export(j.base->slot(), piece.begin, piece.end, out.first(size));
  j.cost.transfer += options_.now() - start;
  if (!written) {
    fail(j, written.error(), true);
    return false;
  }
  piece.size = *written;
  report_.exported_bytes += piece.size;
  j.delivered = piece.end;
  sink_->on_piece(std::move(piece));
  return true;
}

// -- in -----------------------------------------------------------------------

void batching_engine::take_arrivals() {
  while (!arrivals_.empty() && io_budget_allows(arrivals_.front().size)) {
    auto piece = std::move(arrivals_.front());
    arrivals_.pop_front();
    report_.imported_bytes += piece.size;
    take_arrival(std::move(piece));
  }
}

/// Puts a piece into its job's sequence. Pieces of jobs that are no more are dropped with their
/// buffers.
void batching_engine::take_arrival(kv_piece piece) {
  auto* j = find(piece.job);
  if (j == nullptr || j->state != job_state::running || !j->awaits_imports()) return;
  const auto refuse = [&](const char* what) {
    fail(*j,
         {"kv_import_failed",
          fmt::format("the KV piece of positions {} to {} was refused: {}", piece.begin, piece.end,
                      what),
          {}},
         true);
  };
  if (piece.begin >= piece.end || piece.begin < j->cached || piece.end > j->base_size())
    return refuse("it is outside the range that was asked for");
  if (!piece.buffer || piece.size > piece.buffer->bytes().size())
    return refuse("it is larger than its buffer");
  const auto next = j->arrived.lower_bound(piece.begin);
  const bool overlaps = (next != j->arrived.end() && next->first < piece.end) ||
                        (next != j->arrived.begin() && std::prev(next)->second > piece.begin);
  if (overlaps) return refuse("some of it came before");
  const auto tokens = piece.end - piece.begin;
  if (!evict_until_free(tokens)) return refuse("there are too few free cells");
  sink_->on_work({&j->id, 1});
  const auto start = options_.now();
  const auto done = runner_->kv_import(j->base->slot(), piece.begin, piece.end,
                                       piece.buffer->bytes().first(piece.size));
  j->cost.transfer += options_.now() - start;
  if (!done) return fail(*j, done.error(), true);
  j->base->extend(piece.begin, piece.end);
  j->arrived.emplace(piece.begin, piece.end);
  j->base_missing -= tokens;
  if (j->base_missing > 0) return;
  j->prompt_in = true;
  sink_->on_adopted(j->id);
}

}  // namespace troupe::engine
