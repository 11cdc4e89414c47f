#include "actors/request/supply_book.hpp"

#include <algorithm>

namespace troupe::request {

namespace {

bool computes(msg::Role r) {
  return r == msg::Role::PREFILL || r == msg::Role::DECODE || r == msg::Role::BOTH;
}

/// Of a request like the reference, MU in a second.
double rate(double seconds_per_mu) { return seconds_per_mu > 0 ? 1 / seconds_per_mu : 0; }

}  // namespace

void supply_book::update(const directory::change& c) {
  for (const auto& e : c.removed) {
    models_.erase(e.name);
    reports_.erase(e.name);
  }
  for (const auto& e : c.added_or_changed)
    if (computes(e.role)) models_[e.name] = e.model;
}

double supply_book::bytes_per_token(const std::string& model) const {
  double sum = 0, count = 0;
  for (const auto& [worker, r] : reports_) {
    const auto m = models_.find(worker);
    if (m == models_.end() || m->second != model || r.bytes_per_token < bytes_per_token_min ||
        r.bytes_per_token > bytes_per_token_max)
      continue;
    sum += r.bytes_per_token;
    count += 1;
  }
  return count > 0 ? sum / count : bytes_per_token_assumed;
}

std::uint32_t supply_book::in_use(const directory::entry& e) const {
  const auto r = reports_.find(e.name);
  if (r == reports_.end() || r->second.generation != e.generation) return 0;
  return r->second.running + r->second.queued;
}

supply_book::of_model supply_book::supply(const std::string& model, const directory::snapshot& all,
                                          cost_book& costs) const {
  const auto& like = capacity::reference_request;
  of_model out;
  out.window.prefill_workers = 0;
  double prefill = 0, decode = 0, whole = 0;  // MU per second
  for (const auto& [name, e] : all) {
    if (!computes(e.role) || e.model != model) continue;
    if (e.state == msg::EntryState::DRAINING && e.role != msg::Role::PREFILL)
      out.window.leaving += std::min(e.slots, in_use(e));
    if (e.state != msg::EntryState::READY) continue;
    const auto& cost = costs.of_worker(name, model);
    const auto prompt = cost.prefill_seconds(like.prompt_tokens, 0);
    const auto answer = cost.decode_seconds(like.prompt_tokens, like.output_tokens,
                                            std::max(cost.about().usual_batch, 1.0));
    if (e.role != msg::Role::DECODE) {
      const auto step = step_tokens_.find(e.pool);
      const double ahead = prompt > 0 ? like.prompt_tokens / prompt * prefill_ahead_s : 0;
      out.window.prefill_tokens += static_cast<std::uint64_t>(
          std::max(2.0 * (step == step_tokens_.end() ? 0 : step->second), ahead));
      ++out.window.prefill_workers;
    }
    if (e.role != msg::Role::PREFILL) {
      out.window.slots += e.slots;
      out.window.in_use += in_use(e);
    }
    if (e.role == msg::Role::PREFILL)
      prefill += rate(prompt);
    else if (e.role == msg::Role::DECODE)
      decode += rate(answer);
    else
      whole += cost.about().mu_per_minute > 0 ? cost.about().mu_per_minute / 60
                                              : rate(prompt + answer);
  }
  out.mu_per_second = whole + std::min(prefill, decode);
  return out;
}

}  // namespace troupe::request
