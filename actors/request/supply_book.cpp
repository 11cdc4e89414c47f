#include "actors/request/supply_book.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe::request {

namespace {

bool computes(msg::Role r) {
  return r == msg::Role::PREFILL || r == msg::Role::DECODE || r == msg::Role::BOTH;
}

/// Of a request like the reference, MU in a second.
double rate(double seconds_per_mu) { return seconds_per_mu > 0 ? 1 / seconds_per_mu : 0; }

}  // namespace

void supply_book::count(const std::string& worker, int by) {
  const auto r = reports_.find(worker);
  const auto m = models_.find(worker);
  if (r == reports_.end() || m == models_.end() ||
      r->second.bytes_per_token < bytes_per_token_min ||
      r->second.bytes_per_token > bytes_per_token_max)
    return;
  auto& b = bytes_[m->second];
  b.sum += by * r->second.bytes_per_token;
  b.workers += by;
  if (b.workers == 0) bytes_.erase(m->second);
}

void supply_book::note(const std::string& worker, const report& r) {
  count(worker, -1);
  reports_[worker] = r;
  count(worker, 1);
}

void supply_book::update(const directory::change& c) {
  for (const auto& e : c.removed) {
    count(e.name, -1);
    models_.erase(e.name);
    reports_.erase(e.name);
  }
  for (const auto& e : c.added_or_changed) {
    if (!computes(e.role)) continue;
    count(e.name, -1);
    models_[e.name] = e.model;
    count(e.name, 1);
  }
}

double supply_book::bytes_per_token(const std::string& model) const {
  const auto b = bytes_.find(model);
  return b == bytes_.end() ? bytes_per_token_assumed : b->second.sum / b->second.workers;
}

const supply_book::report* supply_book::last_of(const directory::entry& e) const {
  const auto r = reports_.find(e.name);
  return r == reports_.end() || r->second.generation != e.generation ? nullptr : &r->second;
}

std::map<std::string, supply_book::of_model> supply_book::supply(const directory::snapshot& all,
                                                                 cost_book& costs,
                                                                 time_point now) const {
  const auto& like = capacity::reference_request;
  std::map<std::string, of_model> models;
  struct rates {
    double prefill = 0, decode = 0, whole = 0;  // MU per second
  };
  std::map<std::string, rates> sums;
  struct heard {
    double slots = 0, in_use = 0;  // of ready workers whose word is young
    std::vector<const directory::entry*> silent;
  };
  std::map<std::string, heard> words;
  for (const auto& [name, e] : all) {
    if (!computes(e.role)) continue;
    const auto [at, first] = models.try_emplace(e.model);
    auto& out = at->second;
    if (first) out.window.prefill_workers = 0;
    const auto* last = last_of(e);
    const auto in_use = last ? last->running + last->queued : 0;
    if (e.state == msg::EntryState::DRAINING && e.role != msg::Role::PREFILL)
      out.window.leaving += std::min(e.slots, in_use);
    if (e.state != msg::EntryState::READY) continue;
    auto& sum = sums[e.model];
    const auto& cost = costs.of_worker(name, e.model);
    const auto prompt = cost.prefill_seconds(like.prompt_tokens, 0);
    const auto answer = cost.decode_seconds(like.prompt_tokens, like.output_tokens,
                                            std::max(cost.about().usual_batch, 1.0));
    if (e.role != msg::Role::DECODE) {
      const auto step = step_tokens_.find(e.pool);
      const double ahead = prompt > 0 ? like.prompt_tokens / prompt * prefill_ahead_s : 0;
      out.window.prefill_tokens += static_cast<std::uint64_t>(
          std::max(prefill_ahead_steps * (step == step_tokens_.end() ? 0 : step->second), ahead));
      ++out.window.prefill_workers;
    }
    if (e.role != msg::Role::PREFILL) {
      out.window.slots += e.slots;
      auto& word = words[e.model];
      if (last && now - last->heard > supply_stale_after) {
        word.silent.push_back(&e);
      } else {
        out.window.in_use += in_use;
        word.slots += last ? e.slots : 0;
        word.in_use += in_use;
      }
    }
    if (e.role == msg::Role::PREFILL)
      sum.prefill += rate(prompt);
    else if (e.role == msg::Role::DECODE)
      sum.decode += rate(answer);
    else
      sum.whole += cost.about().mu_per_minute > 0 ? cost.about().mu_per_minute / 60
                                                  : rate(prompt + answer);
  }
  // One that has fallen silent is unknown, not idle: as busy as those that say something. Where
  // nobody does, its last word stands.
  for (const auto& [model, word] : words)
    for (const auto* e : word.silent) {
      const auto* last = last_of(*e);
      models[model].window.in_use += word.slots > 0 ? static_cast<std::uint32_t>(std::ceil(
                                                          word.in_use / word.slots * e->slots))
                                                    : last->running + last->queued;
    }
  for (const auto& [model, sum] : sums)
    models[model].mu_per_second = sum.whole + std::min(sum.prefill, sum.decode);
  return models;
}

}  // namespace troupe::request
