// Whether each job gets what is due to it. A job that is passed over again and again was forgotten:
// nothing else would notice while the others get on.
//
// What rightly stands still is owed nothing: whoever waits behind a higher rank, for KV or a grant
// from elsewhere, is set aside or pre-empted; a prefill while higher ranks take the whole budget;
// all others during a pass of a job that runs alone; a sequence whose turn it isn't while more
// decode than fit is owed its part of a turn only. Nothing counts but passes that were computed.

#include "gpu/engine/batching/batching_engine.hpp"

#include <algorithm>

namespace troupe::engine {

namespace {

/// A step without a pass, though there is something to compute, is worth so many turns: an engine
/// that forgets the only job that it has takes one step a second.
constexpr double idle_step_turns = 8;

/// What it needs next is computed without sampling, so that it goes by rank and not by turns.
bool prefills(const job& j) {
  if (!j.prompt_in) return true;
  bool begun = false;
  for (const auto& c : j.choices) {
    if (c.done || !c.kv) continue;
    if (c.kv->end() + 1 >= j.known_size(c)) return false;
    begun = true;
  }
  return begun;
}

}  // namespace

void batching_engine::miss(job& j, double turns) const {
  if (turns <= 0) return;
  if (j.turns_missed <= 0) j.missing_since = options_.now();
  j.turns_missed += turns;
}

/// The part of a turn that a pass owed to a job that was not in it. `alone`: how many jobs that
/// must run alone have work.
double batching_engine::due(const job& j, const pass& p, std::size_t alone) const {
  // They take turns among themselves, and with all others together.
  if (j.alone_passes_left > 0) return 1 / (2.0 * static_cast<double>(alone));
  if (p.parts.front().who.owner->alone_passes_left > 0) return 0;
  if (!prefills(j))
    return std::min(1.0, static_cast<double>(limits_.step_tokens) / std::max(1U, p.decoding));
  const bool lower_first = p.last_prefill != nullptr && j.outranks(*p.last_prefill);
  return p.unshared > 0 || lower_first ? 1 : 0;
}

/// A pass has been computed, and is not booked yet.
void batching_engine::note_turns(const pass& p) {
  for (const auto& part : p.parts) {
    part.who.owner->last_pass = passes_;
    part.who.owner->turns_missed = 0;
  }
  // A probe comes before everybody, for two passes of a token each.
  if (p.parts.front().who.owner->probe) return;
  const auto alone = static_cast<std::size_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const auto& j) { return j->has_work() && j->alone_passes_left > 0; }));
  for (auto& j : running_)
    if (j->has_work() && !j->probe && j->last_pass != passes_) miss(*j, due(*j, p, alone));
}

void batching_engine::note_idle_step() {
  for (auto& j : running_)
    if (j->has_work() && !j->probe) miss(*j, idle_step_turns);
  if (!running_.empty() || waiting_.empty()) return;
  // Whoever has the engine to himself is always admitted.
  if (auto& first = *waiting_.front(); first.state == job_state::waiting && !first.probe)
    miss(first, idle_step_turns);
}

void batching_engine::note_admission(job& admitted) {
  admitted.turns_missed = 0;
  for (auto& j : waiting_)
    if (j->state == job_state::waiting && !j->probe && j->outranks(admitted)) miss(*j, 1);
}

passed_over_job batching_engine::most_passed_over() const {
  const job* most = nullptr;
  const auto consider = [&](const job& j) {
    if (j.turns_missed > 0 && (most == nullptr || j.turns_missed > most->turns_missed)) most = &j;
  };
  for (const auto& j : running_)
    if (j->has_work()) consider(*j);
  for (const auto& j : waiting_)
    if (j->state == job_state::waiting) consider(*j);
  if (most == nullptr) return {};
  return {
      most->id, most->turns_missed,
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.now() - most->missing_since)};
}

}  // namespace troupe::engine
