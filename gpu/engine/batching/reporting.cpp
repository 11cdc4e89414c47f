// How jobs end, and what the engine tells about itself.

#include "gpu/engine/batching/batching_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace troupe::engine {

/// The job holds nothing any more; it is forgotten at the end of the step.
void batching_engine::end(job& j) {
  tell_cost(j);
  release_kv(j);
  j.claim.reset();
  j.parking.clear();
  j.state = job_state::ended;
}

void batching_engine::tell_cost(job& j) {
  const auto cost = std::exchange(j.cost, {});
  if (!j.probe && cost.any()) sink_->on_cost(j.id, cost);
}

void batching_engine::fail(job& j, error why, bool retryable) {
  end(j);
  sink_->on_failed({j.id, std::move(why), retryable});
}

/// Forgets ended jobs and lets pre-empted ones wait again.
void batching_engine::sweep() {
  const auto ended = [](const auto& j) { return j->state == job_state::ended; };
  const auto before = running_.size() + waiting_.size() + aside_.size();
  std::erase_if(waiting_, ended);
  std::erase_if(running_, ended);
  std::erase_if(aside_, ended);
  for (auto& j : running_) {
    if (j->state != job_state::preempted) continue;
    j->state = job_state::waiting;
    insert_by_rank(waiting_, std::move(j));
    report_.worked = true;
  }
  std::erase(running_, nullptr);
  if (running_.size() + waiting_.size() + aside_.size() != before) report_.worked = true;
}

void batching_engine::keep_in_cache(kv::sequence kv, std::vector<token_id> tokens, const job& of) {
  if (limits_.prefix_reuse) cache_.insert(std::move(kv), std::move(tokens), of.chain, of.scope);
}

void batching_engine::report_prefixes() {
  const auto changes = cache_.take_changes();
  if (!changes.added.empty() || !changes.dropped.empty())
    sink_->on_prefixes(changes.added, changes.dropped);
}

std::uint32_t batching_engine::further_answers() const {
  std::ptrdiff_t all = 0;
  for (const auto* list : {&running_, &waiting_})
    for (const auto& j : *list) {
      if (!j->generate || j->probe) continue;
      const auto open = std::count_if(j->choices.begin(), j->choices.end(),
                                      [](const choice_run& c) { return !c.done; });
      all += std::max<std::ptrdiff_t>(1, open) - 1;
    }
  return static_cast<std::uint32_t>(all);
}

void batching_engine::publish() {
  std::uint64_t tokens = 0;
  std::uint32_t again = 0;
  for (const auto& j : waiting_) {
    if (j->probe) continue;
    tokens += j->base_size();
    if (!j->claim) ++again;
  }
  for (const auto& j : running_)
    if (!j->awaits_imports() && !j->probe) tokens += j->base_missing;
  counters_.prefilled += report_.prefilled;
  counters_.queued_tokens = tokens;
  counters_.queued = again;
  counters_.running = static_cast<std::uint32_t>(running_.size()) -
                      (running_probe() != nullptr ? 1U : 0U);
  counters_.further = further_answers();
  counters_.referenced = pool_.referenced();
  counters_.cached = pool_.cached();
  {
    std::lock_guard lock{passed_over_mutex_};
    passed_over_ = most_passed_over();
  }
  ++counters_.steps;
}

engine_gauges batching_engine::gauges() const {
  engine_gauges g;
  g.steps = counters_.steps;
  g.ticks = runner_->ticks();
  g.ticks_inside = runner_->ticks_inside();
  g.stepping = counters_.stepping;
  g.at_hand = counters_.at_hand;
  g.busy_us = counters_.busy_us;
  g.prefilled = counters_.prefilled;
  g.sampled = counters_.sampled;
  g.running = counters_.running;
  g.queued = counters_.queued + static_cast<std::uint32_t>(claims_.load());
  g.further = counters_.further;
  g.queued_tokens = counters_.queued_tokens;
  g.kv_total = usable_cells();
  g.kv_referenced = counters_.referenced;
  g.kv_cached = counters_.cached;
  g.probes = counters_.probes;
  std::lock_guard lock{passed_over_mutex_};
  g.passed_over = passed_over_;
  return g;
}

audit_report batching_engine::audit() {
  audit_report out;
  const auto truth = runner_->truth();
  out.ledger_tokens = pool_.used();
  out.engine_cells = truth.used_cells;
  out.referenced = pool_.referenced();
  out.jobs = static_cast<std::uint32_t>(running_.size() + waiting_.size() + aside_.size());
  if (out.ledger_tokens != out.engine_cells)
    out.mismatches.push_back(fmt::format("cells: the ledger has {}, the engine {}",
                                         out.ledger_tokens, out.engine_cells));
  auto books = pool_.ranges();
  for (const auto& actual : truth.slots) {
    if (actual.first < 0) continue;
    const auto found = std::find_if(books.begin(), books.end(),
                                    [&](const auto& b) { return b.slot == actual.slot; });
    if (found == books.end()) {
      out.mismatches.push_back(fmt::format("slot {}: the engine holds {} to {}, the ledger nothing",
                                           actual.slot, actual.first, actual.last));
      continue;
    }
    if (found->first != actual.first || found->last != actual.last)
      out.mismatches.push_back(
          fmt::format("slot {}: the engine holds {} to {}, the ledger {} to {}", actual.slot,
                      actual.first, actual.last, found->first, found->last));
    books.erase(found);
  }
  for (const auto& missing : books)
    out.mismatches.push_back(fmt::format("slot {}: the ledger holds {} to {}, the engine nothing",
                                         missing.slot, missing.first, missing.last));
  return out;
}

}  // namespace troupe::engine
