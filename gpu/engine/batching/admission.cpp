// Which jobs run: those that find a slot and room for their prompt and their predicted answer.

#include "gpu/engine/batching/batching_engine.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::engine {

void batching_engine::admit_waiting() {
  // Strictly by rank: nobody slips past a large job that waits for room, so none starves.
  while (!waiting_.empty()) {
    auto& next = *waiting_.front();
    if (next.state != job_state::ended && (!place_for(next) || !try_admit(next))) {
      if (!set_one_aside() && !preempt_below(next.priority)) return;
      continue;
    }
    report_.worked = true;
    auto j = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    if (j->state == job_state::ended) continue;
    note_admission(*j);
    insert_by_rank(running_, std::move(j));
  }
}

bool batching_engine::place_for(const job& j) const {
  if (j.probe && probe_cells_ > 0) return true;
  const auto probes = running_probe() != nullptr ? 1U : 0U;
  return running_.size() - probes < limits_.slots;
}

/// Lets the lowest-ranked running job make room for one of higher priority. False: none is lower.
bool batching_engine::preempt_below(std::uint8_t priority) {
  if (running_.empty() || running_.back()->priority >= priority) return false;
  preempt(*running_.back());
  sweep();
  return true;
}

/// A prefill job that is computed and waits for decode's grant makes room: its KV goes to the
/// cache, where the grant will probably still find it. Otherwise two engines could wait for each
/// other: decode's reservations for prompts that queue here, and these for jobs that decode doesn't
/// admit yet.
bool batching_engine::set_one_aside() {
  const auto idle = std::find_if(running_.rbegin(), running_.rend(), [](const auto& j) {
    return j->state == job_state::running && !j->generate && j->prompt_in && !j->deliver_from;
  });
  if (idle == running_.rend()) return false;
  auto& j = **idle;
  j.claim = queue_claim::take(claims_, submit_queue_jobs_max);
  if (!j.claim) return false;
  keep_in_cache(std::move(*j.base), {j.prompt.begin(), j.prompt.end() - 1}, j);
  release_kv(j);
  j.state = job_state::waiting;
  aside_.push_back(std::move(*idle));
  running_.erase(std::next(idle).base());
  return true;
}

/// The longest beginning of the prompt whose KV is here, in the cache or with a running job. The
/// last prompt token never counts.
batching_engine::prefix batching_engine::longest_prefix(const job& j) {
  if (!limits_.prefix_reuse || j.probe) return {};
  const auto wanted = std::span<const token_id>(j.prompt).first(j.base_size());
  prefix best;
  if (const auto cached = cache_.find(wanted, j.scope); cached.kv != nullptr)
    best = {cached.kv, cached.length, 0};
  const auto consider = [&](const kv::sequence& kv, const job& owner, const choice_run* c) {
    const std::span<const token_id> prompt = owner.prompt;
    auto common = kv::common_prefix(wanted,
                                    prompt.first(std::min<std::size_t>(prompt.size(), kv.end())));
    if (c != nullptr && common == prompt.size() && kv.end() > common)
      common += kv::common_prefix(
          wanted.subspan(common),
          std::span<const token_id>(c->ids).subspan(owner.answer_in_prompt, kv.end() - common));
    if (common > best.length) best = {&kv, common, 0};
  };
  for (const auto& other : running_) {
    if (other->state != job_state::running || other->awaits_imports() || other->probe) continue;
    if (other->scope != j.scope) continue;
    if (other->base) consider(*other->base, *other, nullptr);
    for (const auto& c : other->choices)
      if (c.kv) consider(*c.kv, *other, &c);
  }
  if (best.source != nullptr) best.unreferenced = best.source->unreferenced(0, best.length);
  return best;
}

std::uint32_t batching_engine::predicted_growth(const job& j) const {
  std::uint32_t cells = 0;
  for (const auto& c : j.choices) {
    if (c.done) continue;
    const auto sampled = static_cast<std::uint32_t>(c.ids.size());
    const auto left = j.max_tokens - std::min(j.max_tokens, sampled);
    const auto predicted = predictor_.predict(j.max_tokens);
    const auto coming = predicted > sampled ? predicted - sampled
                                            : std::min(left, kv::output_predictor::tokens_min);
    const auto lacking = c.kv ? j.known_size(c) - c.kv->end()
                              : sampled - static_cast<std::uint32_t>(j.answer_in_prompt);
    cells += coming + lacking;
  }
  return cells;
}

bool batching_engine::try_admit(job& j) {
  auto slot = open_slot(j.probe);
  if (!slot) return false;
  auto found = longest_prefix(j);
  if (!j.parking.empty() && found.length < j.base_size()) found = {};  // parked pieces are whole
  const auto missing = j.base_size() - found.length;
  std::int64_t room = growth_room();
  for (const auto& other : running_)
    if (other->state == job_state::running && !other->probe) room -= predicted_growth(*other);
  // A job that has the engine to itself is never refused: what it outgrows is dealt with when it
  // happens. Nor is a probe, whose room is kept for it.
  const bool has_room = running_.empty() || (j.probe && probe_cells_ > 0);
  if (!has_room && room < std::int64_t{missing} + found.unreferenced + predicted_growth(j))
    return false;

  j.base = std::move(slot);
  if (found.source != nullptr) found.source->share_with(*j.base, 0, found.length);
  j.base_missing = missing;
  j.prompt_in = missing == 0;
  j.state = job_state::running;
  j.claim.reset();
  if (!j.parking.empty()) return unpark(j);
  j.arrived.clear();
  if (j.admitted_before) return true;
  j.admitted_before = true;
  j.cached = found.length;
  j.queued = since(j.submitted);
  if (!j.generate || j.prefill_here) sink_->on_started(j.id, j.cached);
  if (j.generate && !j.prefill_here) {
    sink_->on_import_ready(j.id, j.cached);
    if (j.prompt_in) sink_->on_adopted(j.id);
  }
  return true;
}

/// Starts choices that have no KV yet, or no more: while slots are free, and, if they have been
/// pre-empted before, while there is room for more than a moment.
void batching_engine::start_choices(job& j) {
  for (auto& c : j.choices) {
    if (c.done || c.kv) continue;
    const auto pending = std::count_if(j.choices.begin(), j.choices.end(),
                                       [](const choice_run& o) { return !o.done && !o.kv; });
    const bool others_run = std::any_of(j.choices.begin(), j.choices.end(),
                                        [](const choice_run& o) { return o.kv.has_value(); });
    if (others_run && growth_room() < std::int64_t(c.ids.size()) + kv::output_predictor::tokens_min)
      return;
    if (pending == 1 && j.base) {
      c.kv = std::move(j.base);
      j.base.reset();
      return;
    }
    auto slot = open_slot();
    if (!slot) {
      // The base is the one slot that is certain: the first choice may take it, and hands it on.
      if (others_run || !j.base) return;
      c.kv = std::move(j.base);
      j.base.reset();
      continue;
    }
    prompt_source(j)->share_with(*slot, 0, j.base_size());
    c.kv = std::move(slot);
  }
}

}  // namespace troupe::engine
