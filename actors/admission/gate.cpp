#include "actors/admission/gate.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::admission {

namespace {

/// Of the newest request, in the mean of a tenant's.
constexpr double mean_weight = 0.05;

double weight_of(const tenant_limits& l, service_class how) {
  return how == service_class::guaranteed ? std::max(l.guaranteed_per_minute, 1e-6)
                                          : l.best_effort_weight;
}

}  // namespace

std::string budget_name(const std::string& tenant, const std::string& model) {
  return tenant + "/" + model;
}

gate::gate(std::vector<tenant_limits> limits, std::string gateway,
           std::vector<std::string> gateways, std::uint64_t incarnation, time_point now)
    : gateway_(std::move(gateway)), gateways_(std::move(gateways)), incarnation_(incarnation) {
  for (auto& l : limits) add(std::move(l), now);
}

void gate::add(tenant_limits l, time_point now) {
  models_[l.model];
  auto& p = parties_[{l.tenant, l.model}];
  const budget_terms terms{l.guaranteed_per_minute, l.burst, l.floor_per_minute, l.open_max,
                           gateways_.size()};
  if (l.guaranteed_per_minute <= 0 && l.open_max == 0) {
    p.budget.reset();
  } else if (p.budget) {
    p.budget->set_terms(terms, now);
  } else {
    p.budget = std::make_unique<budget_holder>(
        terms, owner_order(budget_name(l.tenant, l.model), gateways_), incarnation_, now);
    for (const auto& [gateway, is] : reachable_) p.budget->reachable(gateway, is, now);
  }
  p.known = true;
  p.limits = std::move(l);
}

void gate::set_limits(std::vector<tenant_limits> limits, time_point now) {
  // Whoever begins anew in the same incarnation would be taken for an old word of it.
  if (incarnation_ % sets_max != sets_max - 1) ++incarnation_;
  for (auto& [name, p] : parties_) p.known = false;
  for (auto& l : limits) add(std::move(l), now);
  for (auto i = parties_.begin(); i != parties_.end();) {
    const auto name = (i++)->first;
    forget_if_over(name);
  }
}

/// It is not in the cluster file, and nothing of it is left.
bool gate::is_over(const key& name, const party& p) const {
  return !p.known && p.unsettled == 0 && models_.at(name.second).queue.size_of(name.first) == 0;
}

void gate::forget_if_over(const key& name) {
  const auto i = parties_.find(name);
  if (i == parties_.end() || !is_over(name, i->second)) return;
  models_.at(name.second).queue.forget(name.first);
  parties_.erase(i);
}

bool gate::knows(const std::string& tenant, const std::string& model) const {
  const auto i = parties_.find({tenant, model});
  return i != parties_.end() && i->second.known;
}

double gate::guaranteed_waiting(const party& p, const model_state& m) {
  return m.queue.mu_of(p.limits.tenant, service_class::guaranteed);
}

/// All requests of a tenant are let in or refused as if they cost the same: otherwise small ones
/// would take whatever comes free, and a large one would never find enough.
double gate::usual_mu(const party& p, double mu) { return p.mean_mu > 0 ? p.mean_mu : mu; }

bool gate::has_place(const party& p) const {
  const auto most = p.budget ? p.budget->open_allowed() : std::nullopt;
  return !most || p.open < *most;
}

/// Until the tenant's own running requests make room for one more. They end one by one, the work in
/// them does not: since the last end some of the way to the next one has passed.
seconds gate::concurrency_wait(const party& p, const model_state& m, time_point now) const {
  const auto most = p.limits.open_max;
  if (most == 0) return seconds{0};
  const auto before = p.open + m.queue.size_of(p.limits.tenant);
  if (before < most) return seconds{0};
  const auto apart = p.mean_run / most;
  const auto passed = p.open < most ? seconds{0} : std::min(seconds(now - p.last_over), apart);
  return apart * static_cast<double>(before + 1 - most) - passed;
}

/// Of a tenant that has nothing but its budget.
seconds gate::budget_wait(party& p, const model_state& m, double mu, time_point now) {
  if (p.limits.best_effort_weight > 0 || p.limits.guaranteed_per_minute <= 0) return seconds{0};
  return p.budget->wait_for(usual_mu(p, mu), guaranteed_waiting(p, m), now);
}

seconds gate::capacity_wait(const model_state& m, const queued_request& r, time_point now) const {
  // Who waits nevertheless, waits for limits of their own.
  if (m.window.has_room(r.how == service_class::guaranteed)) return seconds{0};
  const double all = m.drain.per_second();
  if (r.how == service_class::guaranteed) {
    const double ahead = m.queue.mu_ahead(r) - m.drain.since_last(now);
    if (ahead <= 0) return seconds{0};
    return all > 0 ? seconds{ahead / all} : retry_after_unknown;
  }
  // Guaranteed work that comes later goes before it, too: best effort has the rate that is left.
  const double first = m.queue.mu_until(service_class::guaranteed);
  const double rest = std::max(0.0, m.queue.mu_ahead(r) - first - m.best_effort.since_last(now));
  if (first + rest <= 0) return seconds{0};
  const double left = m.best_effort.per_second();
  return all > 0 && left > 0 ? seconds{first / all + rest / left} : retry_after_unknown;
}

/// A queue takes up what comes at once. Where more comes than can be done it would be full all the
/// time, and everybody who is let in would have waited through it. So then a tenant has one request
/// waiting, which keeps its turn, and that is its latest (adaptive LIFO: Maurer, "Fail at Scale",
/// ACM Queue 13(8), 2015). A tenant that asks for no more than its turns bring waits as ever, and
/// so does what waits for limits of its own, what a guarantee is about to pay for, and whoever
/// would rather wait for longer than it takes to tell a crowd.
bool gate::fresh_only(const party& p, const model_state& m, const queued_request& r,
                      time_point now) const {
  if (m.window.has_room() || !has_place(p)) return false;
  return r.how == service_class::best_effort && m.crowd.lasts(now) &&
         p.alone.part(now, 1) < crowds_below &&
         seconds(p.limits.wait_max).count() < crowding_memory_s &&
         (p.limits.guaranteed_per_minute <= 0 ||
          p.budget->within_reach(now) < r.mu + guaranteed_waiting(p, m));
}

/// `by` waits already, so that its tenant's turn is kept.
void gate::displace(party& p, model_state& m, const queued_request& by) {
  while (const auto* first = m.queue.first_of(by.tenant, by.how)) {
    if (first->id == by.id) return;
    const auto r = *m.queue.remove(first->id);
    waiting_.erase(r.id);
    m.displaced.push_back(
        {r.id, refusal{"capacity", 429, retry_after_crowded,
                       fmt::format("More is asked of model '{}' than it can do, and a later "
                                   "request of this tenant waits for the next place.",
                                   p.limits.model)}});
    ++p.refused[m.displaced.back().why->reason];
  }
}

queued_request gate::place_of(party& p, const model_state& m, std::uint64_t id, double mu,
                              time_point deadline, time_point now) {
  const auto& l = p.limits;
  queued_request r{
      id, l.tenant, service_class::guaranteed, l.priority, weight_of(l, service_class::guaranteed),
      mu, deadline};
  const bool funded = l.guaranteed_per_minute > 0 &&
                      p.budget->affords(mu + guaranteed_waiting(p, m), now);
  if (!funded && l.best_effort_weight > 0) {
    r.how = service_class::best_effort;
    r.weight = weight_of(l, r.how);
  }
  return r;
}

refusal gate::queue_full(const party& p, const model_state& m, const queued_request& r) const {
  return {
      "queue_full", 429, seconds{r.mu / std::max(m.drain.per_second(), 1e-3)},
      fmt::format("Tenant '{}' has {} requests waiting for model '{}', and there is no room for "
                  "more of them.",
                  r.tenant, m.queue.size_of(r.tenant), p.limits.model)};
}

namespace {

bool refuse(refusal& why, const char* reason, int status, seconds wait, std::string message) {
  why = {reason, status, wait, std::move(message)};
  return false;
}

}  // namespace

/// By the tenant's own limits.
bool gate::check_own(party& p, const model_state& m, const queued_request& r, time_point now,
                     refusal& why) {
  const auto& l = p.limits;
  const auto allowed = std::min<seconds>(l.wait_max, seconds(r.deadline - now));
  if (const auto own = budget_wait(p, m, r.mu, now); own > allowed)
    return refuse(why, "tenant_limit", 429, own - allowed,
                  fmt::format("Tenant '{}' has used its {:g} model units per minute of model '{}'.",
                              l.tenant, l.guaranteed_per_minute, l.model));
  if (const auto own = concurrency_wait(p, m, now); own > allowed)
    return refuse(why, "tenant_concurrency", 429, own - allowed,
                  fmt::format("Tenant '{}' has {} requests of model '{}' running, which is its "
                              "limit, and others waiting.",
                              l.tenant, l.open_max, l.model));
  return true;
}

bool gate::check_capacity(const party& p, const model_state& m, const queued_request& r,
                          time_point now, refusal& why) const {
  const auto& l = p.limits;
  if (m.window.slots() == 0)
    return refuse(why, "model_not_ready", 503, retry_after_unknown,
                  fmt::format("No engine of model '{}' is ready.", l.model));
  const auto allowed = std::min<seconds>(l.wait_max, seconds(r.deadline - now));
  if (const auto queue = capacity_wait(m, r, now); queue > allowed)
    return refuse(why, "capacity", 429, queue - allowed,
                  fmt::format("All capacity of model '{}' is in use, and the wait would be longer "
                              "than {} ms.",
                              l.model, std::chrono::ceil<milliseconds>(allowed).count()));
  const auto ahead = m.queue.mu_until(r.how) + m.queue.mu_of(l.tenant, r.how);
  // One that is larger than all that may wait is let in where nothing does: it would never be.
  if (ahead > 0 && ahead + r.mu > queued_mu_max) {
    why = queue_full(p, m, r);
    return false;
  }
  return true;
}

bool gate::would_admit(const standing_query& q, time_point now) {
  auto& p = at(q.tenant, q.model);
  auto& m = models_.at(q.model);
  refusal why;
  const auto r = place_of(p, m, 0, q.mu, q.deadline, now);
  // It would wait, but give way to the next one.
  if (fresh_only(p, m, r, now) && m.queue.first_of(r.tenant, r.how) != nullptr) return false;
  return check_own(p, m, r, now, why) && check_capacity(p, m, r, now, why);
}

bool gate::arrive(const arrival& a, time_point now, refusal& why) {
  auto& p = at(a.tenant, a.model);
  auto& m = models_.at(a.model);
  auto r = place_of(p, m, a.id, a.mu, a.deadline, now);
  if (r.how == service_class::best_effort)
    p.alone.note(m.queue.first_of(r.tenant, r.how) == nullptr, now);
  bool in = check_own(p, m, r, now, why);
  if (in) in = !a.crowded && check_capacity(p, m, r, now, why);
  if (a.crowded) why = queue_full(p, m, r);
  seconds more{0};
  if (p.limits.guaranteed_per_minute > 0)
    more = seconds{std::max(0.0, a.mu - usual_mu(p, a.mu)) / p.limits.guaranteed_per_minute * 60};
  p.mean_mu = usual_mu(p, a.mu) + mean_weight * (a.mu - usual_mu(p, a.mu));
  if (!in) {
    ++p.refused[why.reason];
    return false;
  }
  r.deadline = std::min(r.deadline, now + p.limits.wait_max + wait_slack +
                                        std::chrono::duration_cast<time_point::duration>(more));
  if (m.queue.empty()) m.waited = false;
  if (!m.queue.waits(service_class::best_effort)) m.best_effort_waited = false;
  waiting_[a.id] = {a, now};
  m.queue.push(r);
  if (fresh_only(p, m, r, now)) displace(p, m, r);
  return true;
}

bool gate::may_begin(const queued_request& r, const std::string& model, time_point now) {
  auto& p = at(r.tenant, model);
  if (!p.budget) return true;
  if (!has_place(p)) return false;
  return r.how == service_class::best_effort || p.budget->affords(r.mu, now);
}

void gate::begin(const queued_request& r, const std::string& model, model_state& m,
                 time_point now) {
  auto& p = at(r.tenant, model);
  if (r.how == service_class::guaranteed && p.budget) p.budget->spend(r.mu, now);
  const auto w = waiting_.find(r.id);
  const auto tokens = w->second.prompt_tokens;
  const auto places = std::max<std::uint32_t>(1, w->second.places);
  if (r.how == service_class::best_effort) m.crowd.began(seconds(now - w->second.since), now);
  waiting_.erase(w);
  m.drain.began(r.mu, m.waited, now);
  m.waited = !m.queue.empty();
  if (r.how == service_class::best_effort) {
    m.best_effort.began(r.mu, m.best_effort_waited, now);
    m.best_effort_waited = m.queue.waits(r.how);
  }
  m.window.began(tokens, places);
  ++p.open;
  ++p.admitted;
  ++p.unsettled;
  p.reserved += r.mu;
  running_[r.id] = {&p, &m, r.how, r.priority, r.weight, r.mu, tokens, places, now};
}

/// Requests that were let in on a budget which is not there any more, of tenants that may have what
/// nobody guarantees. The last first: those before them may be afforded.
void gate::demote(const std::string& model, model_state& m, time_point now) {
  for (const auto& tenant : m.queue.waiting_tenants(service_class::guaranteed)) {
    auto& p = at(tenant, model);
    const auto& l = p.limits;
    if (l.best_effort_weight <= 0) continue;
    while (true) {
      const double waits = guaranteed_waiting(p, m);
      if (waits <= 0) break;
      if (p.budget && l.guaranteed_per_minute > 0 && p.budget->affords(waits, now)) break;
      if (!m.queue.demote(tenant, l.priority, l.best_effort_weight)) break;
    }
  }
}

/// Best-effort requests whose tenant's budget has room for them by now.
void gate::promote(const std::string& model, model_state& m, time_point now) {
  for (const auto& tenant : m.queue.waiting_tenants(service_class::best_effort)) {
    auto& p = at(tenant, model);
    const auto& l = p.limits;
    if (l.guaranteed_per_minute <= 0 || !p.budget) continue;
    while (const auto* first = m.queue.first_of(tenant, service_class::best_effort)) {
      if (!p.budget->affords(first->mu + guaranteed_waiting(p, m), now)) break;
      m.queue.promote(tenant, l.priority, l.guaranteed_per_minute);
    }
  }
}

/// It was let in on an estimate that did not hold. It may come back when another one like it would
/// be let in, which may be now.
refusal gate::too_late(party& p, model_state& m, const queued_request& r, time_point now) {
  if (m.window.slots() == 0)
    return {"model_not_ready", 503, retry_after_unknown,
            fmt::format("No engine of model '{}' is ready.", p.limits.model)};
  refusal again;
  const auto like_it = place_of(p, m, r.id, r.mu, now + p.limits.wait_max, now);
  const bool in = check_own(p, m, like_it, now, again) && check_capacity(p, m, like_it, now, again);
  const auto wait = std::max(in ? seconds{0} : again.retry_after, seconds{wait_slack});
  if (!has_place(p))
    return {"tenant_concurrency", 429, wait,
            fmt::format("Tenant '{}' has {} requests of model '{}' running, which is its limit.",
                        r.tenant, p.limits.open_max, p.limits.model)};
  if (r.how == service_class::guaranteed && p.budget && !p.budget->affords(r.mu, now))
    return {"tenant_limit", 429, wait,
            fmt::format("Tenant '{}' has used its {:g} model units per minute of model '{}'.",
                        r.tenant, p.limits.guaranteed_per_minute, p.limits.model)};
  return {"capacity", 429, wait,
          fmt::format("All capacity of model '{}' is in use.", p.limits.model)};
}

void gate::pump(const std::string& model, model_state& m, time_point now,
                std::vector<verdict>& out) {
  for (auto& v : std::exchange(m.displaced, {})) out.push_back(std::move(v));
  if (m.queue.empty()) return;
  demote(model, m, now);
  promote(model, m, now);
  while (m.window.has_room(true)) {
    const bool for_all = m.window.has_room();
    auto r = m.queue.next([&](const queued_request& x) {
      return (for_all || x.how == service_class::guaranteed) && may_begin(x, model, now);
    });
    if (!r) break;
    begin(*r, model, m, now);
    out.push_back({r->id, std::nullopt});
  }
  const auto late = m.queue.take_late(now);
  for (const auto& r : late) {
    const auto w = waiting_.find(r.id);
    const bool own = now >= w->second.deadline;
    waiting_.erase(w);
    auto& p = at(r.tenant, model);
    out.push_back({r.id, own ? refusal{"deadline_exceeded", 504, seconds{0},
                                       "The request waited until its time was over."}
                             : too_late(p, m, r, now)});
    ++p.refused[out.back().why->reason];
  }
  // Several of one tenant may have been late.
  for (const auto& r : late) forget_if_over({r.tenant, model});
}

std::vector<verdict> gate::pump(time_point now) {
  std::vector<verdict> out;
  for (auto& [name, m] : models_) pump(name, m, now, out);
  return out;
}

std::vector<verdict> gate::pump(const std::string& model, time_point now) {
  std::vector<verdict> out;
  if (const auto i = models_.find(model); i != models_.end()) pump(model, i->second, now, out);
  return out;
}

void gate::prefilled(std::uint64_t id) {
  if (const auto i = running_.find(id); i != running_.end()) give_prompt_back(i->second);
}

/// What its prompt takes of the window.
void gate::give_prompt_back(running& r) {
  if (!std::exchange(r.prefilled, true)) r.model->window.prefilled(r.prompt_tokens);
}

void gate::over(std::uint64_t id, time_point now) {
  const auto i = running_.find(id);
  if (i == running_.end() || i->second.over) return;
  auto& r = i->second;
  give_prompt_back(r);
  r.over = true;
  r.model->window.ended(r.places);
  --r.who->open;
  r.who->last_over = now;
  const auto took = seconds(now - r.since);
  auto& mean = r.who->mean_run;
  mean = mean.count() > 0 ? mean + mean_weight * (took - mean) : took;
}

bool gate::ended(std::uint64_t id, double mu, time_point now) {
  if (const auto w = waiting_.find(id); w != waiting_.end()) {
    const key name{w->second.tenant, w->second.model};
    models_.at(name.second).queue.remove(id);
    waiting_.erase(w);
    forget_if_over(name);
    return false;
  }
  const auto i = running_.find(id);
  if (i == running_.end()) return false;
  over(id, now);
  auto& r = i->second;
  auto& p = *r.who;
  p.reserved = std::max(0.0, p.reserved - r.mu);
  p.charged += mu;
  if (r.how == service_class::guaranteed && p.budget) {
    if (mu < r.mu)
      p.budget->refund(r.mu - mu, now);
    else if (mu > r.mu)
      p.budget->spend(mu - r.mu, now);
  }
  r.model->queue.charge(p.limits.tenant, r.how, r.priority, r.weight, mu - r.mu);
  --p.unsettled;
  running_.erase(i);
  if (!p.known) forget_if_over({p.limits.tenant, p.limits.model});
  return true;
}

void gate::supply(const std::string& model, const capacity_window::supply& s,
                  double mu_per_second) {
  const auto i = models_.find(model);
  if (i == models_.end()) return;
  i->second.window.update(s);
  i->second.drain.expect(mu_per_second);
  i->second.best_effort.expect(mu_per_second);
}

standing gate::where(const std::string& tenant, const std::string& model, time_point now) {
  auto& p = at(tenant, model);
  if (p.limits.guaranteed_per_minute <= 0 || !p.budget) return {};
  const double has = std::max(0.0, p.budget->within_reach(now));
  const double rate = p.limits.guaranteed_per_minute / 60;
  return {p.limits.guaranteed_per_minute, has, seconds{std::max(0.0, p.limits.burst - has) / rate}};
}

void gate::word_of(const key& name, party& p, time_point now, std::vector<outgoing>& out) {
  if (!p.budget) return;
  const auto& q = models_.at(name.second).queue;
  double need = 0, keep = 0;
  if (p.limits.guaranteed_per_minute > 0) {
    const auto* first = q.first_of(name.first, service_class::guaranteed);
    if (first == nullptr) first = q.first_of(name.first, service_class::best_effort);
    if (first != nullptr && !p.budget->affords(first->mu, now)) need = first->mu;
    keep = q.mu_of(name.first, service_class::guaranteed);
  }
  const auto waiting = static_cast<std::uint32_t>(q.size_of(name.first));
  const auto want = p.open + waiting + (p.open + waiting > 0 ? 1U : 0U);
  if (!p.budget->word_due(need, want, now)) return;
  const auto owner = p.budget->owner(now);
  if (!owner) return;
  out.push_back({*owner, budget_name(name.first, name.second),
                 p.budget->word(need, p.open, want, now, keep)});
}

std::vector<gate::outgoing> gate::words(time_point now) {
  std::vector<outgoing> out;
  for (auto& [name, p] : parties_) word_of(name, p, now, out);
  return out;
}

void gate::words_of(const std::string& tenant, const std::string& model, time_point now,
                    std::vector<outgoing>& out) {
  const auto i = parties_.find({tenant, model});
  if (i != parties_.end()) word_of(i->first, i->second, now, out);
}

void gate::answered(const std::string& budget, const std::string& by, const owner_word& in,
                    time_point now) {
  const auto slash = budget.find('/');
  if (slash == std::string::npos) return;
  const auto i = parties_.find({budget.substr(0, slash), budget.substr(slash + 1)});
  if (i != parties_.end() && i->second.budget) i->second.budget->answered(by, in, now);
}

void gate::reachable(const std::string& gateway, bool is, time_point now) {
  reachable_[gateway] = is;
  for (auto& [name, p] : parties_)
    if (p.budget) p.budget->reachable(gateway, is, now);
}

std::vector<tenant_account> gate::accounts(time_point now) {
  std::vector<tenant_account> out;
  for (auto& [name, p] : parties_) {
    const auto& q = models_.at(name.second).queue;
    out.push_back({name.first, name.second, p.admitted, p.refused, p.charged, p.reserved, p.open,
                   q.size_of(name.first), q.mu_of(name.first),
                   p.budget && p.budget->on_floor(now)});
  }
  return out;
}

double gate::reserved_mu() const {
  double sum = 0;
  for (const auto& [name, p] : parties_) sum += p.reserved;
  return sum;
}

}  // namespace troupe::admission
