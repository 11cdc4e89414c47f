#include "actors/request/worker_board.hpp"

#include "actors/request/json_fields.hpp"
#include "messages/entry_state.hpp"

#include <tuple>

namespace troupe::request {

namespace {

const char* name_of(msg::Role r) {
  switch (r) {
  case msg::Role::PREFILL:
    return "prefill";
  case msg::Role::DECODE:
    return "decode";
  case msg::Role::BOTH:
    return "both";
  default:
    return nullptr;
  }
}

void put_figures(json_writer& w, msg::WorkerReport::Reader r) {
  count(w, "running", r.getRunning());
  count(w, "queued", r.getQueued());
  count(w, "queued_tokens", r.getQueuedTokens());
  count(w, "preparing", r.getPreparing());
  count(w, "unprepared", r.getUnprepared());
  count(w, "kv_used_tokens", r.getKvUsedTokens());
  count(w, "kv_cached_tokens", r.getKvCachedTokens());
  count(w, "kv_total_tokens", r.getKvTotalTokens());
  count(w, "steps", r.getSteps());
  count(w, "prefilled_tokens", r.getPrefilledTokens());
  count(w, "sampled_tokens", r.getSampledTokens());
  count(w, "transfer_bytes", r.getTransferBytes());
  count(w, "probes", r.getProbes());
  count(w, "stalls", r.getStalls());
  number(w, "prefill_tokens_per_second", r.getPrefillTokensPerSecond());
  number(w, "decode_tokens_per_second", r.getDecodeTokensPerSecond());
}

/// These only grow in a worker's life.
bool is_before(msg::WorkerReport::Reader a, msg::WorkerReport::Reader b) {
  const auto progress = [](msg::WorkerReport::Reader r) {
    return std::tuple{r.getGeneration(),    r.getSteps(),  r.getTicks(),
                      r.getSampledTokens(), r.getBusyUs(), r.getPrefilledTokens(),
                      r.getTransferBytes(), r.getProbes(), r.getTransferRounds()};
  };
  return progress(a) < progress(b);
}

}  // namespace

bool worker_board::put(const msg::envelope<msg::WorkerReport>& report) {
  msg::view<msg::WorkerReport> in{report};
  std::string name = in->getWorker().cStr();
  std::lock_guard lock{mutex_};
  const auto [i, first] = reports_.try_emplace(std::move(name), report);
  if (first) return true;
  msg::view<msg::WorkerReport> known{i->second};
  if (is_before(*in, *known)) return false;
  i->second = report;
  return true;
}

std::string worker_board::to_json(const directory::snapshot& all) const {
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  w.StartObject();
  w.Key("workers");
  w.StartArray();
  std::lock_guard lock{mutex_};
  for (const auto& [name, e] : all) {
    const auto* role = name_of(e.role);
    if (!role) continue;
    w.StartObject();
    text(w, "name", name);
    text(w, "role", role);
    text(w, "model", e.model);
    text(w, "host", e.host);
    count(w, "generation", e.generation);
    w.Key("ready");
    w.Bool(e.state == msg::EntryState::READY);
    text(w, "state", msg::state_name(e.state));
    // Without a process nothing is held, whatever its last word was.
    const bool gone = e.state == msg::EntryState::FAILED || e.state == msg::EntryState::STOPPED;
    if (!e.detail.empty()) text(w, "detail", e.detail);
    if (!e.slow.empty()) text(w, "slow", e.slow);
    if (!e.device_class.empty()) text(w, "device_class", e.device_class);
    count(w, "kv_bytes_per_token", e.kv_bytes_per_token);
    bool idle = false;
    if (auto i = reports_.find(name); i != reports_.end() && !gone) {
      msg::view<msg::WorkerReport> r{i->second};
      // A report of an older incarnation says nothing of this one.
      if (r->getGeneration() == e.generation) {
        put_figures(w, *r);
        idle = r->getIdle();
      }
    }
    w.Key("idle");
    w.Bool(idle);
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

}  // namespace troupe::request
