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

}  // namespace

std::string to_json(const timeline& t) {
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  w.SetMaxDecimalPlaces(3);
  w.StartObject();
  text(w, "id", t.id);
  text(w, "model", t.model);
  text(w, "status", t.status);
  w.Key("attempts");
  w.StartArray();
  for (const auto& a : t.attempts) put(w, a);
  w.EndArray();
  count(w, "prompt_tokens", t.prompt_tokens);
  count(w, "cached_tokens", t.cached_tokens);
  count(w, "completion_tokens", t.completion_tokens);
  if (t.ttft_ms >= 0) number(w, "ttft_ms", t.ttft_ms);
  number(w, "total_ms", t.total_ms);
  const auto decoding_ms = t.total_ms - t.ttft_ms;
  if (t.ttft_ms >= 0 && t.completion_tokens > 1 && decoding_ms > 0)
    number(w, "tokens_per_second", (t.completion_tokens - 1) * 1000.0 / decoding_ms);
  if (!t.finish.empty()) text(w, "finish", t.finish);
  w.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

void timeline_store::put(const timeline& t) {
  std::lock_guard lock{mutex_};
  if (by_id_.insert_or_assign(t.id, t).second) order_.push_back(t.id);
  while (order_.size() > timelines_max) {
    by_id_.erase(order_.front());
    order_.pop_front();
  }
}

std::string timeline_store::get(const std::string& id) const {
  timeline found;
  {
    const std::lock_guard lock{mutex_};
    const auto i = by_id_.find(id);
    if (i == by_id_.end()) return {};
    found = i->second;
  }
  return to_json(found);
}

}  // namespace troupe::request
