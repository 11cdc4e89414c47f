#include "actors/request/waiting_room.hpp"

#include "actors/admission/retry_after.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe::request {

namespace {

std::uint32_t tokens_of(const prompt_content& p, double bytes_per_token) {
  const auto tokens = std::ceil(static_cast<double>(p.bytes()) / bytes_per_token);
  return static_cast<std::uint32_t>(
      std::min<double>(tokens, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

std::uint64_t bytes_of(const submission& s) {
  std::uint64_t bytes = 0;
  for (const auto& p : s.prompts) bytes += p->bytes();
  return bytes;
}

double reserve_mu(const submission& s, const waiting_room::terms& t, std::uint64_t& prompt_tokens) {
  const auto answer = t.forecast.reserve(s.tenant, s.model, s.max_tokens);
  double mu = 0;
  prompt_tokens = 0;
  for (const auto& p : s.prompts) {
    const auto tokens = tokens_of(*p, t.bytes_per_token);
    prompt_tokens += tokens;
    mu += t.price.prefill_mu(tokens, 0) + s.choices * t.price.decode_mu(tokens, answer);
  }
  return mu;
}

waiting_room::waiting_room(std::vector<troupe::admission::tenant_limits> limits, std::string host,
                           std::vector<std::string> gateways, std::uint64_t incarnation,
                           time_point now)
    : gate_(std::move(limits), std::move(host), std::move(gateways), incarnation, now),
      random_(incarnation) {}

/// All of its models together: they share the node.
bool waiting_room::crowded(const std::string& tenant, const terms& t) const {
  crowd sum;
  for (auto i = crowds_.lower_bound({tenant, {}}); i != crowds_.end() && i->first.first == tenant;
       ++i) {
    sum.requests += i->second.requests;
    sum.bytes += i->second.bytes;
  }
  return sum.requests > t.free_requests || sum.bytes > t.free_bytes;
}

waiting_room::guest waiting_room::take(std::map<std::uint64_t, guest>::iterator i) {
  auto who = std::move(i->second);
  waiting_.erase(i);
  const auto c = crowds_.find({who.what->tenant, who.what->model});
  --c->second.requests;
  c->second.bytes -= bytes_of(*who.what);
  if (c->second.requests == 0) crowds_.erase(c);
  return who;
}

std::optional<std::uint64_t> waiting_room::number_of(const request_id& id) const {
  const auto i = numbers_.find(id);
  return i == numbers_.end() ? std::nullopt : std::optional{i->second};
}

void waiting_room::tell_standing(const guest& who, time_point now) {
  const auto at = gate_.where(who.what->tenant, who.what->model, now);
  if (at.limit_per_minute <= 0) return;
  who.what->client->on_standing(
      {at.limit_per_minute, at.remaining, std::chrono::ceil<std::chrono::milliseconds>(at.reset)});
}

waiting_room::outcome waiting_room::refused(guest who, const troupe::admission::refusal& why,
                                            time_point now) {
  if (gate_.knows(who.what->tenant, who.what->model)) tell_standing(who, now);
  const double draw = std::uniform_real_distribution<>{0, 1}(random_);
  failure f{why.http_status, why.reason, why.message, "", std::chrono::milliseconds{0}};
  // Who asked for less time than it takes need not be told to come back.
  if (why.http_status != 504) f.retry_after = troupe::admission::retry_after(why.retry_after, draw);
  return {std::move(who), std::move(f)};
}

std::vector<waiting_room::outcome> waiting_room::outcomes(
    const std::vector<troupe::admission::verdict>& all, time_point now) {
  std::vector<outcome> out;
  for (const auto& v : all) {
    auto i = waiting_.find(v.id);
    if (i == waiting_.end()) continue;
    auto who = take(i);
    if (v.why) {
      numbers_.erase(who.what->id);
      out.push_back(refused(std::move(who), *v.why, now));
      continue;
    }
    tell_standing(who, now);
    out.push_back({std::move(who), std::nullopt});
  }
  return out;
}

troupe::admission::arrival waiting_room::arrival_of(const submission& s, const terms& t,
                                                    time_point now) const {
  troupe::admission::arrival a;
  a.tenant = s.tenant;
  a.model = s.model;
  a.mu = reserve_mu(s, t, a.prompt_tokens);
  a.deadline = now + s.timeout;
  a.places = static_cast<std::uint32_t>(s.prompts.size() * s.choices);
  a.crowded = crowded(s.tenant, t);
  return a;
}

bool waiting_room::would_admit(const submission& s, const terms& t, time_point now) {
  const auto a = arrival_of(s, t, now);
  return !a.crowded && gate_.would_admit({a.tenant, a.model, a.mu, a.deadline}, now);
}

std::vector<waiting_room::outcome> waiting_room::arrive(guest who, const terms& t, time_point now) {
  const auto& s = *who.what;
  std::vector<outcome> out;
  if (!gate_.knows(s.tenant, s.model)) {
    out.push_back({std::move(who),
                   failure{403, "model_not_allowed",
                           "Tenant '" + s.tenant + "' may not use the model '" + s.model + "'.",
                           "model", std::chrono::milliseconds{0}}});
    return out;
  }
  auto a = arrival_of(s, t, now);
  a.id = ++last_number_;
  troupe::admission::refusal why;
  if (!gate_.arrive(a, now, why)) {
    out.push_back(refused(std::move(who), why, now));
    return out;
  }
  numbers_[s.id] = a.id;
  const auto model = s.model;
  auto& c = crowds_[{s.tenant, model}];
  ++c.requests;
  c.bytes += bytes_of(s);
  waiting_.emplace(a.id, std::move(who));
  return outcomes(gate_.pump(model, now), now);
}

std::vector<waiting_room::outcome> waiting_room::pump(const std::string& model, time_point now) {
  return outcomes(model.empty() ? gate_.pump(now) : gate_.pump(model, now), now);
}

std::optional<waiting_room::guest> waiting_room::leave(const request_id& id, time_point now) {
  const auto number = number_of(id);
  if (!number) return std::nullopt;
  auto i = waiting_.find(*number);
  if (i == waiting_.end()) return std::nullopt;
  auto who = take(i);
  numbers_.erase(id);
  gate_.ended(*number, 0, now);
  return who;
}

void waiting_room::prefilled(const request_id& id) {
  if (const auto number = number_of(id)) gate_.prefilled(*number);
}

void waiting_room::over(const request_id& id, time_point now) {
  if (const auto number = number_of(id)) gate_.over(*number, now);
}

void waiting_room::settled(const request_id& id, double mu, time_point now) {
  const auto number = number_of(id);
  if (!number || waiting_.contains(*number)) return;
  numbers_.erase(id);
  gate_.ended(*number, mu, now);
}

}  // namespace troupe::request
