// Putting a pass together, computing it, and booking what it did.

#include "gpu/engine/batching/batching_engine.hpp"
#include "messages/base/planted.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace troupe::engine {

namespace {

bool is_forgotten(const job& j) {
  constexpr job_id one_of = 8;
  return (planted::is(planted::bug::forget_job) || planted::is(planted::bug::forget_stall)) &&
         !j.probe && j.id % one_of == one_of - 1;
}

}  // namespace

/// The job that has this pass for itself; null: all but those that must run alone have it. The two
/// take turns, so that neither holds the other up for more than a pass. A probe comes first: its
/// two passes are a token each.
const job* batching_engine::whose_turn() {
  if (const auto* probe = running_probe(); probe != nullptr && probe->has_work()) return probe;
  const job* first = nullptr;
  const job* next = nullptr;
  bool others = false;
  for (const auto& j : running_) {
    if (!j->has_work()) continue;
    if (j->alone_passes_left == 0) {
      others = true;
      continue;
    }
    if (first == nullptr || j->age < first->age) first = j.get();
    if (j->age > last_alone_age_ && (next == nullptr || j->age < next->age)) next = j.get();
  }
  if (first == nullptr || (others && last_pass_alone_)) {
    last_pass_alone_ = false;
    return nullptr;
  }
  const auto* turn = next != nullptr ? next : first;
  last_pass_alone_ = true;
  last_alone_age_ = turn->age;
  return turn;
}

/// Asks every sequence what it needs, composes the batch, and finds room for its tokens, by rank:
/// whoever has to give way comes later in the order and isn't booked yet.
batching_engine::pass batching_engine::compose() {
  std::vector<participant> participants;
  std::vector<sequence_work> works;
  const auto* alone = whose_turn();
  for (auto& j : running_) {
    const bool has_turn = alone == nullptr ? j->alone_passes_left == 0 : j.get() == alone;
    if (!j->has_work() || !has_turn || is_forgotten(*j)) continue;
    if (!j->prompt_in) {
      participants.push_back({j.get(), nullptr, j->base->end()});
      works.push_back({j->base_missing});
      continue;
    }
    start_choices(*j);
    for (auto& c : j->choices) {
      if (!c.kv) continue;
      const auto have = c.kv->end();
      participants.push_back({j.get(), &c, have});
      works.push_back({j->known_size(c) - 1 - have});
    }
  }
  auto shares = compose_batch(works, limits_.step_tokens, passes_);
  std::sort(shares.begin(), shares.end(),
            [](const batch_share& a, const batch_share& b) { return a.sequence < b.sequence; });

  pass p;
  p.decoding = static_cast<std::uint32_t>(std::count_if(
      works.begin(), works.end(), [](const sequence_work& w) { return w.prefill == 0; }));
  p.unshared = limits_.step_tokens;
  for (const auto& share : shares) {
    p.unshared -= share.tokens;
    if (!share.decode) p.last_prefill = participants[share.sequence].owner;
  }
  std::uint32_t booked = 0;
  std::uint32_t booked_growth = 0;
  for (const auto& share : shares) {
    const auto& who = participants[share.sequence];
    if (who.owner->state != job_state::running || (who.choice != nullptr && !who.choice->kv))
      continue;
    auto tokens = share.tokens;
    const bool probe = who.owner->probe && probe_cells_ > 0;
    if (who.choice != nullptr && !probe) {
      tokens = make_growth_room(who, tokens, booked_growth);
      booked_growth += tokens;
    }
    if (tokens == 0 || !evict_until_free(booked + tokens, probe)) continue;
    booked += tokens;
    p.parts.push_back({who, tokens, share.decode});
  }
  std::stable_partition(p.parts.begin(), p.parts.end(),
                        [](const pass::part& part) { return part.decode; });
  for (const auto& [who, tokens, decode] : p.parts) {
    const auto slot = who.choice != nullptr ? who.choice->kv->slot() : who.owner->base->slot();
    for (position i = 0; i < tokens; ++i) {
      const auto pos = who.from + i;
      const auto token = who.choice != nullptr ? who.owner->known(*who.choice, pos)
                                               : who.owner->prompt[pos];
      p.tokens.push_back({slot, token, pos, decode});
    }
  }
  return p;
}

void batching_engine::run(pass& p) {
  std::unordered_map<job_id, std::uint32_t> tokens;
  for (const auto& part : p.parts) tokens[part.who.owner->id] += part.tokens;
  std::vector<job_id> at_hand;
  for (const auto& [id, count] : tokens) at_hand.push_back(id);
  sink_->on_work(at_hand);
  sink_->on_pass(p.tokens.size());
  ++passes_;
  counters_.at_hand = static_cast<std::uint32_t>(p.tokens.size());
  const auto start = options_.now();
  queue_.pass_begins(std::move(tokens));
  const auto status = runner_->forward(p.tokens);
  queue_.pass_ended();
  report_.forward = since(start);
  counters_.busy_us += static_cast<std::uint64_t>(report_.forward.count());
  report_.batch = static_cast<std::uint32_t>(p.tokens.size());
  charge(p, start, status == forward_status::done);
  switch (status) {
  case forward_status::done:
    note_turns(p);
    pass_done(p, report_.forward);
    break;
  case forward_status::aborted:
    break;  // the next step does without what was cancelled
  case forward_status::no_cells:
    pass_without_cells(p);
    break;
  case forward_status::failed:
    for (const auto& part : p.parts)
      if (part.who.owner->state == job_state::running)
        fail(*part.who.owner,
             {"engine_failed",
              "the engine could not compute the batch; the request can go on elsewhere",
              {}},
             true);
    break;
  }
}

/// Whoever is in a pass bears its time, whatever becomes of it. The sampling after a pass belongs
/// to it, but ends jobs whose account must be complete by then: the next pass bears it.
void batching_engine::charge(const pass& p, clock_time start, bool completed) {
  const auto took = std::chrono::nanoseconds(options_.now() - start) +
                    std::exchange(sampling_, std::chrono::nanoseconds(0));
  std::vector<step_part> parts;
  double streams = 0;
  for (const auto& part : p.parts) {
    parts.push_back({part.who.from, part.tokens, part.decode});
    streams += part.decode ? 1 : 0;
  }
  const auto shares = costs_.divide(parts, took);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& cost = p.parts[i].who.owner->cost;
    (parts[i].decode ? cost.decode : cost.prefill) += shares[i];
    if (!completed) continue;
    if (parts[i].decode) {
      ++cost.sampled;
      cost.step_shares += 1 / streams;
      cost.sampled_context += parts[i].from + 1.0;
    } else {
      cost.computed += parts[i].tokens;
      cost.computed_context += context_of(parts[i]);
    }
  }
  if (completed) costs_.learn(parts, took);
}

void batching_engine::pass_done(pass& p, std::chrono::microseconds took) {
  // The books first: what sampling ends may go to the cache with all that was computed.
  for (const auto& part : p.parts) {
    auto& j = *part.who.owner;
    const auto end = part.who.from + part.tokens;
    if (part.who.choice != nullptr) {
      part.who.choice->kv->extend(part.who.from, end);
    } else {
      j.base->extend(part.who.from, end);
      j.base_missing -= part.tokens;
      j.prompt_in = j.base_missing == 0;
      j.computed += took;
    }
    if (!part.decode && !j.probe) report_.prefilled += part.tokens;
  }
  std::size_t batch_index = 0;
  const auto before = options_.now();
  for (const auto& part : p.parts) {
    if (!part.decode) break;
    auto& j = *part.who.owner;
    if (!j.decoding_since) j.decoding_since = options_.now() - took;
    if (j.state == job_state::running) {
      sink_->on_work({&j.id, 1});
      sample(j, *part.who.choice, batch_index);
    }
    ++batch_index;
  }
  sampling_ = options_.now() - before;
  // A pass of a job that runs alone is nobody else's.
  if (auto& only = *p.parts.front().who.owner; batch_index > 0 && only.alone_passes_left > 0)
    --only.alone_passes_left;
}

/// The runner found no cells though the books had some (it may need them in one piece): the same
/// order of giving way, then the pass is tried again.
void batching_engine::pass_without_cells(pass& p) {
  if (cache_.evict_one()) return;
  auto* lowest = p.parts.front().who.owner;
  for (const auto& part : p.parts)
    if (lowest->outranks(*part.who.owner)) lowest = part.who.owner;
  if (running_.size() > 1) {
    preempt(*lowest);
  } else {
    fail(*lowest, {"kv_exhausted", "the engine has no KV memory left for this request", {}}, true);
  }
}

}  // namespace troupe::engine
