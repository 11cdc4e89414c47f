// Taking jobs and other commands in.

#include "gpu/engine/batching/batching_engine.hpp"
#include "messages/job_codes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace troupe::engine {

expected<void> batching_engine::check(std::span<const token_id> prompt) const {
  if (prompt.empty()) return error{"empty_prompt", "a prompt needs at least one token", "prompt"};
  const std::size_t most = std::min<std::size_t>(usable_cells(), info().context_tokens);
  if (prompt.size() + 1 > most)
    return error{"prompt_too_long",
                 fmt::format("the prompt has {} tokens; with one for the answer that is more than "
                             "the {} that this engine can hold",
                             prompt.size(), most),
                 "prompt"};
  return check_ids(prompt, "prompt");
}

/// One id outside the vocabulary would fail everybody's batch.
expected<void> batching_engine::check_ids(std::span<const token_id> ids,
                                          const char* parameter) const {
  for (const auto token : ids)
    if (token < 0 || static_cast<std::uint32_t>(token) >= info().vocabulary)
      return error{
          "invalid_token",
          fmt::format("token id {} is outside the vocabulary of {}", token, info().vocabulary),
          parameter};
  return ok;
}

error batching_engine::no_ranges() const {
  return {
      "kv_not_transferable",
      fmt::format("the KV of this model cannot be handed over ({}); it serves only as role `both`",
                  info().no_ranges_reason),
      {}};
}

expected<std::unique_ptr<job>> batching_engine::make_job(job_id id, std::vector<token_id> prompt,
                                                         std::uint8_t priority,
                                                         std::vector<std::uint64_t> chain,
                                                         bool probe) {
  if (auto fits = check(prompt); !fits) return fits.error();
  auto j = std::make_unique<job>();
  j->probe = probe;
  if (probe) {
    j->probe_claim = queue_claim::take(probe_claims_, 1);
    if (!j->probe_claim) return error{msg::probe_pending, "a probe is in this engine already", {}};
  } else {
    j->claim = queue_claim::take(claims_, submit_queue_jobs_max);
  }
  if (!probe && !j->claim)
    return error{"queue_full",
                 fmt::format("{} jobs wait for this engine already", submit_queue_jobs_max),
                 {}};
  j->id = id;
  j->prompt = std::move(prompt);
  j->priority = priority;
  j->chain = std::move(chain);
  j->submitted = options_.now();
  return j;
}

expected<void> batching_engine::submit(prefill_spec spec) {
  if (!info().ranges) return no_ranges();
  if (piece_tokens_max_ == 0)
    return error{"kv_piece_too_small",
                 fmt::format("one token's KV is larger than a piece may be ({} bytes)",
                             options_.piece_bytes_max),
                 {}};
  auto made = make_job(spec.id, std::move(spec.tokens), spec.priority, std::move(spec.chain));
  if (!made) return made.error();
  if (spec.alone) (*made)->alone_passes_left = alone_passes;
  (*made)->resumed = spec.resumed;
  (*made)->scope = spec.prefix_scope;
  queue_.push(submit_command{std::move(*made)});
  return ok;
}

expected<void> batching_engine::submit(generate_spec spec) {
  if (spec.max_tokens == 0 || spec.choices == 0)
    return error{"invalid_job", "a job needs at least one choice and one token", {}};
  if (!spec.resume.empty() && spec.resume.size() != spec.choices)
    return error{"invalid_job", "a resumed job needs to know about every choice", {}};
  if (spec.resumed_kv && (spec.prefill_here || spec.choices != 1 || spec.resume.empty()))
    return error{"invalid_job", "only a single stream that began elsewhere can bring its KV", {}};
  if (!spec.prefill_here && !info().ranges) return no_ranges();
  for (const auto& choice : spec.resume)
    if (auto known = check_ids(choice.ids, "resume"); !known) return known;
  if (spec.probe && (spec.choices > 1 || spec.max_tokens > 1 || !spec.prefill_here ||
                     spec.tokens.size() >= probe_cells_needed))
    return error{"invalid_job", "a probe is one token after a short prompt", {}};
  auto made = make_job(spec.id, std::move(spec.tokens), spec.priority, std::move(spec.chain),
                       spec.probe);
  if (!made) return made.error();
  auto& j = **made;
  j.generate = true;
  j.scope = spec.prefix_scope;
  j.resumed = !spec.resume.empty();
  if (spec.alone) j.alone_passes_left = alone_passes;
  j.max_tokens = spec.max_tokens;
  j.logprobs = spec.logprobs;
  j.top_logprobs = spec.top_logprobs;
  j.ignore_end = spec.ignore_end;
  j.prefill_here = spec.prefill_here;
  // Grammars and replays are made here, by the thread that submits, so that they never hold up a
  // step.
  const std::span<const token_id> banned = spec.ignore_end
                                               ? std::span<const token_id>(info().end_tokens)
                                               : std::span<const token_id>();
  for (std::uint16_t index = 0; index < spec.choices; ++index) {
    choice_run c(index, sampler(spec.how, index, banned));
    auto limits = text_->make_constraint(spec.plan);
    if (!limits) return limits.error();
    c.limits = std::move(*limits);
    c.out = text_->make_output(spec.plan, spec.stops);
    if (!spec.resume.empty()) replay(j, c, spec.resume[index]);
    j.choices.push_back(std::move(c));
  }
  if (spec.resumed_kv)
    if (auto taken = take_answer_in(j); !taken) return taken;
  queue_.push(submit_command{std::move(*made)});
  return ok;
}

/// The answer so far becomes a part of what is imported.
expected<void> batching_engine::take_answer_in(job& j) const {
  const auto& ids = j.choices.front().ids;
  j.prompt.insert(j.prompt.end(), ids.begin(), ids.end());
  j.answer_in_prompt = ids.size();
  return check(j.prompt);
}

/// Brings a choice to where an earlier attempt left it. Nothing is given out again: what replayed
/// ids added to the client's answer came with them.
void batching_engine::replay(const job& j, choice_run& c, const resumed_choice& earlier) const {
  c.done = earlier.done;
  c.client_bytes = earlier.emitted_bytes;
  if (c.done) return;
  choice_delta owed;
  for (const auto token : earlier.ids) {
    c.ids.push_back(token);
    c.chooser.accept(token);
    if (!j.ignore_end && text_->is_end(token)) {
      c.replayed_end = finish::stop;
      break;
    }
    if (c.limits) c.limits->accept(token);
    auto delta = c.out->push(token);
    const bool stopped = delta.stopped;
    add_text(c, owed, std::move(delta));
    if (stopped) {
      c.replayed_end = finish::stop;
      break;
    }
  }
  c.owed = std::move(owed.text);
  if (c.replayed_end == finish::none && c.ids.size() >= j.max_tokens)
    c.replayed_end = finish::length;
}

void batching_engine::apply(submit_command& c) {
  auto& j = *c.what;
  j.age = next_age_++;
  insert_by_rank(waiting_, std::move(c.what));
  for (auto& choice : j.choices) {
    if (choice.replayed_end == finish::none) continue;
    choice_delta last;
    last.first_index = static_cast<std::uint32_t>(choice.ids.size());
    finish_choice(j, choice, std::move(last), choice.replayed_end);
  }
  finish_if_done(j);
}

void batching_engine::apply(grant_command& c) {
  auto* j = find(c.id);
  if (j == nullptr || j->generate || j->deliver_from) return;
  j->deliver_from = std::min(c.from, j->base_size());
  j->delivered = *j->deliver_from;
  const auto aside = std::find_if(aside_.begin(), aside_.end(),
                                  [&](const auto& other) { return other.get() == j; });
  if (aside == aside_.end()) return;
  insert_by_rank(waiting_, std::move(*aside));
  aside_.erase(aside);
}

void batching_engine::apply(leave_command& c) {
  auto* j = find(c.id);
  if (j == nullptr) return;
  if (const auto* why = why_it_stays(*j)) return sink_->on_stays(c.id, {"cannot_move", why, {}});
  const auto answer = static_cast<std::uint32_t>(j->choices.front().ids.size());
  tell_cost(*j);  // from here on it is another job's
  become_prefill(*j);
  sink_->on_leaving(c.id, j->prompt, answer);
}

void batching_engine::apply(cancel_command& c) {
  auto* j = find(c.id);
  if (j == nullptr) return;
  end(*j);
  sink_->on_cancelled(c.id);
}

job* batching_engine::find(job_id id) {
  for (auto* list : {&running_, &waiting_, &aside_})
    for (auto& j : *list)
      if (j->id == id && j->state != job_state::ended) return j.get();
  return nullptr;
}

void batching_engine::insert_by_rank(job_list& list, std::unique_ptr<job> j) {
  const auto place = std::find_if(list.begin(), list.end(),
                                  [&](const auto& other) { return j->outranks(*other); });
  list.insert(place, std::move(j));
}

}  // namespace troupe::engine
