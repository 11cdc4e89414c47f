// Who gives way when cells or slots are short: first the cache, then prefills that wait for a
// grant, then the lowest-ranked job. The highest-ranked job always goes on, so there is no
// livelock.

#include "gpu/engine/batching/batching_engine.hpp"
#include "messages/base/planted.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace troupe::engine {

const job* batching_engine::running_probe() const {
  // Probes rank first.
  return running_.empty() || !running_.front() || !running_.front()->probe ? nullptr
                                                                           : running_.front().get();
}

/// Cells that nobody but a probe may take.
std::uint32_t batching_engine::reserved_cells() const {
  const auto* probe = running_probe();
  return probe_cells_ - std::min(probe_cells_, probe != nullptr ? probe->cells_held() : 0);
}

/// Cells that admitted prompts will certainly need. Answers may not grow into them.
std::uint32_t batching_engine::promised() const {
  std::uint32_t cells = 0;
  for (const auto& j : running_)
    if (j->state == job_state::running && !j->probe) cells += j->base_missing;
  return cells;
}

bool batching_engine::evict_until_free(std::uint32_t cells, bool for_probe) {
  if (!for_probe) cells += reserved_cells();
  while (pool_.free() < cells)
    if (!cache_.evict_one()) return false;
  return true;
}

/// One sequence is kept for a probe, too.
std::optional<kv::sequence> batching_engine::open_slot(bool for_probe) {
  const bool keeps_one = !for_probe && probe_cells_ > 0 && running_probe() == nullptr;
  while (pool_.slots_free() <= (keeps_one ? 1U : 0U))
    if (!cache_.evict_one()) return std::nullopt;
  return pool_.open(kv::holder::job);
}

const kv::sequence* batching_engine::prompt_source(const job& j) {
  if (j.base) return &*j.base;
  for (const auto& c : j.choices)
    if (c.kv) return &*c.kv;
  return nullptr;
}

/// How many of `wanted` cells an answer may take beside `booked` ones; 0 when it had to give way
/// itself.
std::uint32_t batching_engine::make_growth_room(const participant& p, std::uint32_t wanted,
                                                std::uint32_t booked) {
  for (;;) {
    const auto room = growth_room() - booked;
    if (room > 0) return static_cast<std::uint32_t>(std::min<std::int64_t>(wanted, room));
    if (set_one_aside()) continue;
    if (!give_way(p)) return 0;
  }
}

/// Makes the lowest-ranked job (perhaps the asking one) give cells back. False: the asking sequence
/// was it.
bool batching_engine::give_way(const participant& p) {
  const auto is_running = [](const auto& j) { return j->state == job_state::running; };
  const auto lowest = std::find_if(running_.rbegin(), running_.rend(), is_running);
  auto& victim = **lowest;
  if (&victim != p.owner) {
    preempt(victim);
    return true;
  }
  const auto active = std::count_if(victim.choices.begin(), victim.choices.end(),
                                    [](const choice_run& c) { return c.kv.has_value(); });
  if (active > 1) {
    // One of its choices waits for another.
    const auto last = std::find_if(victim.choices.rbegin(), victim.choices.rend(),
                                   [](const choice_run& c) { return c.kv.has_value(); });
    last->kv.reset();
    return &*last != p.choice;
  }
  if (std::count_if(running_.begin(), running_.end(), is_running) > 1) {
    preempt(victim);
    return false;
  }
  // Alone, and all cells are its own.
  auto& c = *p.choice;
  if (victim.known_size(c) - c.kv->end() > 1) {
    fail(victim,
         {"kv_exhausted",
          fmt::format("the prompt and the answer so far have {} tokens; this engine holds {}",
                      victim.known_size(c), usable_cells()),
          {}},
         true);
  } else {
    choice_delta last;
    last.first_index = static_cast<std::uint32_t>(c.ids.size());
    finish_choice(victim, c, std::move(last), finish::length);
    finish_if_done(victim);
  }
  return false;
}

void batching_engine::preempt(job& j) {
  if (j.generate && !j.prefill_here && !(j.prompt_in && park(j))) {
    fail(j, {"kv_exhausted", "the engine's KV memory is full; the request can go on elsewhere", {}},
         true);
    return;
  }
  release_kv(j);
  j.turns_missed = 0;  // it makes room for others by rank
  j.state = job_state::preempted;
}

/// Copies the prompt's KV to ordinary memory, since it may not be computed here. False: no room for
/// that, either.
bool batching_engine::park(job& j) {
  std::size_t parked = runner_->kv_export_bytes(j.base_size());
  for (const auto* list : {&running_, &waiting_})
    for (const auto& other : *list)
      for (const auto& piece : other->parking) parked += piece.bytes.size();
  if (parked > options_.parked_kv_bytes_max) return false;
  const auto* source = prompt_source(j);
  const auto step = std::max<position>(1, piece_tokens_max_);
  std::vector<parked_kv> parking;
  for (position begin = 0; begin < j.base_size(); begin += step) {
    const auto end = std::min(j.base_size(), begin + step);
    parked_kv piece{begin, end, std::vector<std::byte>(runner_->kv_export_bytes(end - begin))};
    auto written = runner_->kv_export(source->slot(), begin, end, piece.bytes);
    if (!written) return false;
    piece.bytes.resize(*written);
    parking.push_back(std::move(piece));
  }
  j.parking = std::move(parking);
  return true;
}

/// Brings a parked prompt back. True: the job is dealt with, though it may have failed.
bool batching_engine::unpark(job& j) {
  for (const auto& piece : j.parking) {
    if (j.prompt_in) break;  // the cache had all of it
    const auto tokens = piece.end - piece.begin;
    if (!evict_until_free(tokens))
      return fail(j,
                  {"kv_exhausted",
                   "the engine's KV memory is full; the request can go on elsewhere",
                   {}},
                  true),
             true;
    if (auto done = runner_->kv_import(j.base->slot(), piece.begin, piece.end, piece.bytes); !done)
      return fail(j, done.error(), true), true;
    j.base->extend(piece.begin, piece.end);
    j.base_missing -= tokens;
    j.prompt_in = j.base_missing == 0;
  }
  j.parking.clear();
  return true;
}

void batching_engine::release_kv(job& j) {
  if (planted::is(planted::bug::leak_kv) && j.base && j.state == job_state::running)
    (void)new kv::sequence(*std::move(j.base));
  j.base.reset();
  for (auto& c : j.choices) c.kv.reset();
  j.base_missing = 0;
  j.prompt_in = false;
}

}  // namespace troupe::engine
