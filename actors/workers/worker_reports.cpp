// What a worker tells others about itself, and what it is told to do.

#include "actors/control/assignment.hpp"
#include "actors/router/shard_name.hpp"
#include "actors/workers/worker_state.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>

namespace troupe::workers {

namespace {
/// Of prompts, until some were measured.
constexpr float bytes_per_token_assumed = 4;
}  // namespace

worker_state::~worker_state() {
  if (options.office) options.office->unbind(options.self.name, options.self.generation);
  if (options.hand_over)
    options.hand_over->cancel_all({"worker_stopped", options.self.name + " has ended"});
}

time_point worker_state::now() const { return time_point{self->clock().now().time_since_epoch()}; }

void worker_state::told_too_much(const std::string& to, const error& why) const {
  spdlog::error("event=message_too_large worker={} to={} reason=\"{}\"", options.self.name, to,
                why.message);
}

bool worker_state::idle() const {
  if (!jobs.empty()) return false;
  const auto g = options.host->engine().gauges();
  if (g.running > 0 || g.queued > 0 || g.kv_referenced > 0) return false;
  if (!options.hand_over) return true;
  const auto h = options.hand_over->read_gauges();
  return h.sending == 0 && h.receiving == 0;
}

/// Of prompts that will be computed here, and that the engine doesn't have yet.
std::uint64_t worker_state::tokens_being_prepared() const {
  std::size_t bytes = 0;
  for (const auto& [key, id] : open) {
    const auto& j = jobs.at(id);
    if (j.offloaded && j.kind != job_kind::receive) bytes += j.content_bytes;
  }
  return static_cast<std::uint64_t>(
      static_cast<double>(bytes) /
      static_cast<double>(bytes_per_token > 0 ? bytes_per_token : bytes_per_token_assumed));
}

void worker_state::report() {
  const auto g = options.host->engine().gauges();
  msg::draft<msg::WorkerReport> d;
  d->setWorker(options.self.name);
  d->setGeneration(options.self.generation);
  d->setRunning(g.running);
  d->setQueued(g.queued);
  d->setFurtherAnswers(g.further);
  d->setQueuedTokens(g.queued_tokens + tokens_being_prepared());
  d->setKvUsedTokens(g.kv_referenced);
  d->setKvCachedTokens(g.kv_cached);
  d->setKvTotalTokens(g.kv_total);
  d->setSteps(g.steps);
  d->setTicks(g.ticks);
  d->setTicksInside(g.ticks_inside);
  d->setStepping(g.stepping);
  d->setAtHand(g.at_hand);
  d->setBusyUs(g.busy_us);
  d->setSampledTokens(g.sampled);
  d->setPrefilledTokens(g.prefilled);
  d->setProbes(g.probes);
  d->setFaults(faults);
  d->setStalls(stalls);
  if (options.preparing) {
    const auto p = options.preparing();
    d->setPreparing(p.in_hand);
    d->setUnprepared(p.waiting);
    d->setPreparingSign(p.sign);
    d->setPreparingBytes(p.bytes);
    d->setPreparingComputedMs(static_cast<std::uint64_t>(p.computed.count()));
  }
  if (options.hand_over) {
    const auto wire = options.hand_over->read_gauges().wire;
    d->setTransferBytes(wire.sent_bytes + wire.received_bytes);
    d->setTransferRounds(wire.rounds);
    d->setTransferDeviceChanged(wire.device_changed);
  }
  d->setPrefillTokensPerSecond(prefill_rate);
  d->setDecodeTokensPerSecond(decode_rate);
  d->setBytesPerToken(bytes_per_token);
  d->setJobs(static_cast<std::uint32_t>(jobs.size()));
  idle_told = idle();
  d->setIdle(idle_told);
  d->setHold(hold_number);
  auto e = std::move(d).freeze();
  if (!e) return told_too_much("the router", e.error());
  for (const auto& shard : options.shards) options.office->send({shard, 0}, me(), *e);
  options.office->send({options.launcher, 0}, me(), *std::move(e));
}

void worker_state::report_regularly() {
  const auto g = options.host->engine().gauges();
  const auto seconds = std::chrono::duration<float>(options.report_interval).count();
  prefill_rate = static_cast<float>(g.prefilled - last_prefilled) / seconds;
  decode_rate = static_cast<float>(g.sampled - last_sampled) / seconds;
  last_prefilled = g.prefilled;
  last_sampled = g.sampled;
  report();
  self->delayed_send(self, options.report_interval, report_atom::value);
}

void worker_state::check_idle_soon() {
  if (idle_check_due || idle_told) return;
  idle_check_due = true;
  self->delayed_send(self, idle_check_delay, idle_atom::value);
}

void worker_state::check_idle() {
  idle_check_due = false;
  if (idle())
    report();
  else if (jobs.empty())
    check_idle_soon();  // the engine's gauges follow at the end of its step
}

/// Every shard knows of all blocks, whichever keys it has.
void worker_state::note_prefixes(const std::vector<std::uint64_t>& added,
                                 const std::vector<std::uint64_t>& dropped) {
  for (auto h : dropped) blocks.erase(h);
  blocks.insert(added.begin(), added.end());
  for (const auto& shard : options.shards) tell_prefixes(shard, added, dropped, false);
}

/// To the one that asks: the others have missed nothing.
void worker_state::tell_all_prefixes(const std::string& shard) {
  auto& shards = options.shards;
  if (std::find(shards.begin(), shards.end(), shard) == shards.end()) {
    // The cluster file has been given another one since this worker began.
    if (!router::is_shard_name(shard, control::shards_max) || shards.size() >= control::shards_max)
      return;
    shards.push_back(shard);
    spdlog::info("event=shard_added worker={} shard={}", options.self.name, shard);
  }
  tell_prefixes(shard, {blocks.begin(), blocks.end()}, {}, true);
}

void worker_state::tell_prefixes(const std::string& shard, const std::vector<std::uint64_t>& added,
                                 const std::vector<std::uint64_t>& dropped, bool reset) {
  std::size_t a = 0, b = 0;
  bool first = true;
  do {
    const auto drops = std::min(prefix_events_max, dropped.size() - b);
    const auto adds = std::min(prefix_events_max - drops, added.size() - a);
    msg::draft<msg::PrefixEvents> d{256 + (adds + drops) * 8};
    d->setWorker(options.self.name);
    d->setGeneration(options.self.generation);
    d->setSequence(next_prefix_event[shard]++);
    d->setReset(reset && std::exchange(first, false));
    auto more = d->initAdded(static_cast<unsigned>(adds));
    for (unsigned i = 0; i < adds; ++i) more.set(i, added[a + i]);
    auto gone = d->initDropped(static_cast<unsigned>(drops));
    for (unsigned i = 0; i < drops; ++i) gone.set(i, dropped[b + i]);
    a += adds;
    b += drops;
    d->setMore(reset && (a < added.size() || b < dropped.size()));
    send(shard, std::move(d));
  } while (a < added.size() || b < dropped.size());
}

void worker_state::announce() {
  msg::draft<msg::EngineStatus> d;
  directory::write(d->initEntry(), options.self);
  d->setProgress(1);
  send(options.launcher, std::move(d));
}

void worker_state::command(const std::string& from, msg::EngineCommand::Reader in) {
  switch (in.which()) {
  case msg::EngineCommand::HOLD:
    hold(in.getHold());
    break;
  case msg::EngineCommand::RELEASE:
    release();
    break;
  case msg::EngineCommand::UNUSED0:
    break;
  case msg::EngineCommand::STOP:
    stop_now();
    break;
  case msg::EngineCommand::PEER_ENDED:
    peer_ended(in.getPeerEnded());
    break;
  case msg::EngineCommand::AUDIT:
    audit(from);
    break;
  }
}

void worker_state::audit(const std::string& reply_to) {
  engine_host::audit_request x{reply_to, {}, jobs.size(), assembling_bytes};
  for (const auto& [id, j] : jobs) x.keys.push_back(j.key);  // `jobs_max` at most
  options.host->request_audit(std::move(x));
}

/// Its launcher has reaped it: nothing can touch its buffers any more, and what was on its way
/// ends.
void worker_state::peer_ended(msg::PeerEnded::Reader peer) {
  if (!options.hand_over) return;
  auto told = peer.getTransferAddress();
  std::vector<std::byte> address(reinterpret_cast<const std::byte*>(told.begin()),
                                 reinterpret_cast<const std::byte*>(told.end()));
  auto known = peers.find(peer.getEngine().cStr());
  if (known != peers.end() && known->second.first <= peer.getGeneration()) {
    if (address.empty()) address = std::move(known->second.second);
    peers.erase(known);
  }
  if (!address.empty()) options.hand_over->worker_gone(address, true);
}

/// Takes nothing new; what runs may end within the order's time, and is then ended as retryable, so
/// that its request repeats it elsewhere.
void worker_state::hold(msg::Hold::Reader in) {
  const std::chrono::milliseconds within{in.getWithinMs()};
  draining = true;
  held_until = now() + within;
  move_at = now() + std::chrono::milliseconds{in.getMoveAfterMs()};
  hold_number = in.getNumber();
  options.self.state = msg::EntryState::DRAINING;
  announce();
  report();
  self->delayed_send(self, within, drained_atom::value, ++holds);
}

void worker_state::hold_over(std::uint64_t number) {
  if (draining && number == holds) end_all("draining", options.self.name + " is draining");
}

void worker_state::release() {
  if (stopping) return;
  draining = false;
  hold_number = 0;
  ++holds;
  options.self.state = msg::EntryState::READY;
  announce();
}

void worker_state::end_all(const std::string& code, const std::string& message) {
  std::vector<engine::job_id> all;
  for (const auto& [key, id] : open) all.push_back(id);
  for (auto id : all) fail(jobs.at(id), {code, message}, 503, true);
}

void worker_state::stop_now() {
  draining = stopping = true;
  end_all("worker_stopping", options.self.name + " is stopping");
  if (jobs.empty()) return stopped();
  self->delayed_send(self, stop_grace, stopped_atom::value);
}

void worker_state::stopped() {
  if (!std::exchange(told_stopped, true) && options.on_stopped) options.on_stopped();
}

}  // namespace troupe::workers
