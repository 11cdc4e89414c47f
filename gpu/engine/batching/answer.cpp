// From a token to what the client gets.

#include "gpu/engine/batching/batching_engine.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::engine {

void batching_engine::sample(job& j, choice_run& c, std::size_t batch_index) {
  choice_delta delta;
  delta.first_index = static_cast<std::uint32_t>(c.ids.size());
  token_id token = -1;
  const bool shortcut = c.chooser.takes_highest() && !c.limits && !j.logprobs;
  if (shortcut) token = runner_->shortcut_token(batch_index);
  if (token < 0 || c.chooser.bans(token)) {
    const auto logits = runner_->logits(batch_index);
    auto chosen = c.chooser.choose(logits, delta.first_index, c.limits.get(), scratch_);
    if (!chosen) return fail(j, chosen.error(), chosen.error().code == "garbage_output");
    token = *chosen;
    if (j.logprobs)
      delta.logprobs.push_back(logprob_of(
          logits, token, j.top_logprobs, [this](token_id id) { return text_->piece(id); },
          scratch_));
  }
  ++j.sampled;
  if (!j.probe) {
    ++report_.decoded;
    // At once: many tokens with grammars may take long together, and each is progress.
    ++counters_.sampled;
  }
  take_token(j, c, token, std::move(delta));
  finish_if_done(j);
}

void batching_engine::take_token(job& j, choice_run& c, token_id token, choice_delta delta) {
  c.ids.push_back(token);
  c.chooser.accept(token);
  delta.ids.push_back(token);
  auto why = finish::none;
  if (!j.ignore_end && text_->is_end(token)) {
    why = finish::stop;
  } else {
    if (c.limits) c.limits->accept(token);
    auto from = c.out->push(token);
    if (from.stopped) why = finish::stop;
    delta.stop_text = std::move(from.stop_text);
    add_text(c, delta, std::move(from));
  }
  if (why == finish::none &&
      (c.ids.size() >= j.max_tokens || j.known_size(c) >= info().context_tokens))
    why = finish::length;
  if (why != finish::none) return finish_choice(j, c, std::move(delta), why);
  delta.job = j.id;
  delta.choice = c.index;
  delta.emitted_bytes = std::max(c.client_bytes, c.out->emitted_bytes());
  delta.text.insert(0, std::exchange(c.owed, {}));
  sink_->on_delta(std::move(delta));
}

/// Appends what a token (or the end) added, but for what the client has from an earlier attempt.
void batching_engine::add_text(choice_run& c, choice_delta& delta, text::text_delta&& from) {
  const auto after = c.out->emitted_bytes();
  const auto before = after - static_cast<std::uint32_t>(from.text.size());
  const auto known = c.client_bytes > before
                         ? std::min<std::size_t>(from.text.size(), c.client_bytes - before)
                         : 0;
  delta.text.append(from.text, known);
  delta.reasoning += from.reasoning;
  std::move(from.tool_calls.begin(), from.tool_calls.end(), std::back_inserter(delta.tool_calls));
  c.has_tool_calls = c.has_tool_calls || from.has_tool_calls;
}

void batching_engine::finish_choice(job& j, choice_run& c, choice_delta delta, finish why) {
  auto rest = c.out->finish();
  if (rest.stopped) {
    why = finish::stop;
    delta.stop_text = rest.stop_text;
  }
  add_text(c, delta, std::move(rest));
  if (why == finish::stop && c.has_tool_calls) why = finish::tool_calls;
  delta.job = j.id;
  delta.choice = c.index;
  delta.emitted_bytes = std::max(c.client_bytes, c.out->emitted_bytes());
  delta.text.insert(0, std::exchange(c.owed, {}));
  delta.why = why;
  c.done = true;
  if (!j.probe) predictor_.learn(static_cast<std::uint32_t>(c.ids.size()));
  retire_sequence(j, c);
  if (!j.probe && j.finished()) delta.cost = std::make_shared<const job_cost>(j.cost);
  sink_->on_delta(std::move(delta));
}

/// A choice has ended: its KV becomes the base of choices that still wait, or (the first choice's)
/// goes to the cache, or is freed.
void batching_engine::retire_sequence(job& j, choice_run& c) {
  if (!c.kv) return;
  auto kv = std::move(*c.kv);
  c.kv.reset();
  const bool others_wait = std::any_of(j.choices.begin(), j.choices.end(),
                                       [](const choice_run& o) { return !o.done && !o.kv; });
  if (others_wait && !j.base && info().ranges) {
    kv.remove(j.base_size(), kv.end());
    j.base = std::move(kv);
    return;
  }
  // Without ranges its end cannot be cut off: if nobody else has the prompt, it is computed again.
  if (others_wait && prompt_source(j) == nullptr) return preempt(j);
  if (c.index != 0 || j.probe) return;
  auto tokens = j.prompt;
  tokens.insert(tokens.end(), c.ids.begin() + static_cast<std::ptrdiff_t>(j.answer_in_prompt),
                c.ids.end());
  tokens.resize(kv.end());
  keep_in_cache(std::move(kv), std::move(tokens), j);
}

void batching_engine::finish_if_done(job& j) {
  if (j.state == job_state::ended || !j.finished()) return;
  end(j);
  if (j.probe) ++counters_.probes;
  sink_->on_done(j.id, j.sampled,
                 j.decoding_since ? since(*j.decoding_since) : std::chrono::microseconds(0));
}

}  // namespace troupe::engine
