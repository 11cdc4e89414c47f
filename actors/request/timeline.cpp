#include "actors/request/timeline.hpp"

#include "actors/request/json_fields.hpp"

namespace troupe::request {

namespace {

void put(json_writer& w, const attempt_record& a) {
  w.StartObject();
  count(w, "prompt", a.prompt);
  text(w, "plan", a.plan);
  if (!a.route_reason.empty()) text(w, "route", a.route_reason);
  if (!a.prefill_worker.empty()) {
    w.Key("prefill");
    w.StartObject();
    text(w, "worker", a.prefill_worker);
    if (a.prefill_done) {
      number(w, "queue_ms", a.queue_ms);
      number(w, "compute_ms", a.compute_ms);
      count(w, "cached_tokens", a.prefill_cached_tokens);
    }
    w.EndObject();
  }
  if (a.prefill_done) {
    w.Key("transfer");
    w.StartObject();
    count(w, "bytes", a.transfer_bytes);
    count(w, "pieces", a.pieces);
    number(w, "ms", a.transfer_ms);
    number(w, "exposed_ms", a.exposed_ms);
    text(w, "transport", a.transport);
    count(w, "from_token", a.from_token);
    count(w, "to_token", a.to_token);
    w.EndObject();
  }
  if (!a.decode_worker.empty()) {
    w.Key("decode");
    w.StartObject();
    text(w, "worker", a.decode_worker);
    w.EndObject();
  }
  if (a.moved) {
    w.Key("moved");
    w.Bool(true);
  }
  if (!a.error.empty()) text(w, "error", a.error);
  w.EndObject();
}

void put(json_writer& w, const engine::job_cost& cost) {
  const auto ms = [](std::chrono::nanoseconds t) {
    return std::chrono::duration<double, std::milli>(t).count();
  };
  number(w, "prefill_ms", ms(cost.prefill));
  number(w, "decode_ms", ms(cost.decode));
  number(w, "transfer_ms", ms(cost.transfer));
  count(w, "computed_tokens", cost.computed);
  number(w, "computed_context", cost.computed_context);
  count(w, "sampled_tokens", cost.sampled);
  number(w, "sampled_context", cost.sampled_context);
  number(w, "step_shares", cost.step_shares);
}

/// Model units are small numbers: they keep more digits than milliseconds do.
void units(json_writer& w, const char* key, double value) {
  w.SetMaxDecimalPlaces(6);
  number(w, key, value);
  w.SetMaxDecimalPlaces(3);
}

void put(json_writer& w, const settlement& s) {
  w.Key("model_units");
  w.StartObject();
  units(w, "tenant", s.tenant_mu);
  units(w, "physical", s.physical_mu);
  text(w, "costs", std::string{capacity::to_string(s.price)});
  w.EndObject();
  w.Key("cost");
  w.StartObject();
  put(w, total_cost(s.jobs));
  w.Key("guessed");
  w.Bool(s.guessed);
  w.Key("jobs");
  w.StartArray();
  for (const auto& j : s.jobs) {
    w.StartObject();
    text(w, "worker", j.worker);
    count(w, "prompt", j.prompt);
    count(w, "attempt", j.attempt);
    put(w, j.cost);
    w.Key("guessed");
    w.Bool(!j.told);
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
}

}  // namespace

std::string to_json(const timeline& t) {
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  w.SetMaxDecimalPlaces(3);
  w.StartObject();
  text(w, "id", t.id);
  if (!t.tenant.empty()) text(w, "tenant", t.tenant);
  text(w, "model", t.model);
  text(w, "status", t.status);
  w.Key("attempts");
  w.StartArray();
  for (const auto& a : t.attempts) put(w, a);
  w.EndArray();
  count(w, "prompt_tokens", t.prompt_tokens);
  count(w, "cached_tokens", t.cached_tokens);
  count(w, "completion_tokens", t.completion_tokens);
  if (t.waited_ms > 0) number(w, "waited_ms", t.waited_ms);
  if (t.ttft_ms >= 0) number(w, "ttft_ms", t.ttft_ms);
  number(w, "total_ms", t.total_ms);
  const auto decoding_ms = t.total_ms - t.ttft_ms;
  if (t.ttft_ms >= 0 && t.completion_tokens > 1 && decoding_ms > 0)
    number(w, "tokens_per_second", (t.completion_tokens - 1) * 1000.0 / decoding_ms);
  if (!t.finish.empty()) text(w, "finish", t.finish);
  if (t.settled) put(w, *t.settled);
  w.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

void timeline_store::put(const timeline& t) {
  std::lock_guard lock{mutex_};
  key k{t.id, t.tenant};
  auto [i, fresh] = by_id_.try_emplace(k, t);
  if (fresh) {
    order_.push_back(std::move(k));
  } else {
    // A client may give the same id to another request, which then begins.
    auto settled = t.request == i->second.request ? std::move(i->second.settled) : nullptr;
    i->second = t;
    if (!i->second.settled) i->second.settled = std::move(settled);
  }
  while (order_.size() > timelines_max) {
    by_id_.erase(order_.front());
    order_.pop_front();
  }
}

void timeline_store::settle(const ended_request& x, std::shared_ptr<const settlement> what) {
  std::lock_guard lock{mutex_};
  const auto i = by_id_.find({x.external_id, x.tenant});
  if (i != by_id_.end() && i->second.request == x.id) i->second.settled = std::move(what);
}

std::string timeline_store::get(const std::string& id, const std::optional<std::string>& of) const {
  timeline found;
  {
    const std::lock_guard lock{mutex_};
    const auto i = of ? by_id_.find({id, *of}) : by_id_.lower_bound({id, {}});
    if (i == by_id_.end() || i->first.first != id) return {};
    found = i->second;
  }
  return to_json(found);
}

}  // namespace troupe::request
