// A job at the worker, from its arrival to its end.

#include "actors/workers/token_batch.hpp"
#include "actors/workers/worker_state.hpp"
#include "gpu/engine/job_cost_wire.hpp"
#include "messages/base/planted.hpp"
#include "messages/job_codes.hpp"

#include <kj/exception.h>

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

namespace troupe::workers {

namespace {

constexpr int status_unavailable = 503;
constexpr int status_internal = 500;
constexpr int status_timeout = 504;

}  // namespace

// -- in ------------------------------------------------------------------------------

/// What this actor does about one job. One prompt that it has no memory for must not end the whole
/// engine: the job is refused, and whoever asked tries it elsewhere. Should it end the engine all
/// the same, its name is on the board. `reply_to`: whom to tell where there is no job yet; empty:
/// nobody.
void worker_state::about(transfer::job_key key, const std::string& reply_to,
                         const std::function<void()>& handler) {
  const auto board = options.host->board();
  if (board) board->preparing(key);
  try {
    handler();
  } catch (const kj::Exception&) {
    if (board) board->prepared(key);
    throw;  // the message cannot be read: `link::on` counts it
  } catch (const std::exception& e) {
    const refusal why{
        {"not_prepared", options.self.name + " could not take the job: " + std::string{e.what()}},
        status_unavailable,
        true};
    if (auto* j = find(key))
      reject(*j, why);
    else if (!reply_to.empty())
      reject(key, reply_to, why);
  }
  if (board) board->prepared(key);
}
void worker_state::about(msg::Job::Reader job, const std::function<void()>& handler) {
  about(msg::read(job.getKey()), job.getReplyTo().cStr(), handler);
}
void worker_state::about(engine::job_id id, const std::function<void()>& handler) {
  if (const auto* j = find(id)) about(j->key, {}, handler);
}

void worker_state::take_prefill(msg::PrefillJob::Reader in) {
  auto* j = take(in.getJob(), job_kind::prefill);
  if (!j) return;
  note_peer(in.getDecode());
  auto address = in.getDecode().getTransferAddress();
  j->peer.assign(reinterpret_cast<const std::byte*>(address.begin()),
                 reinterpret_cast<const std::byte*>(address.end()));
  j->same_host = in.getDecode().getSameHost();
  if (j->content.complete()) content_is_here(*j);
}

void worker_state::take_decode(msg::DecodeJob::Reader in) {
  const bool apart = in.getSource().isPrefill();
  auto* j = take(in.getJob(), apart ? job_kind::receive : job_kind::whole);
  if (!j) return;
  if (apart) note_peer(in.getSource().getPrefill());
  if (j->content.complete()) content_is_here(*j);
}

/// The part that all jobs share; null when the job was refused.
job* worker_state::take(msg::Job::Reader in, job_kind kind) {
  const auto key = msg::read(in.getKey());
  const std::string reply_to = in.getReplyTo().cStr();
  if (open.contains(key)) return nullptr;  // the first one counts
  auto content = content_assembly::begin(in.getContent(), assembly_bytes_max);
  refusal why{{}, status_unavailable, true};
  if (draining)
    why.why = {"draining", options.self.name + " is draining"};
  else if (jobs.size() >= jobs_max && !in.getIsProbe())
    why.why = {"queue_full", options.self.name + " holds as many jobs as it may"};
  else if (!content)
    why.why = content.error();
  else if (in.getContent().getBytes() >
           assembly_bytes_max - std::min(assembly_bytes_max, assembling_bytes))
    why.why = {"assembly_full", options.self.name +
                                    " has no room for another prompt: together they may have " +
                                    std::to_string(assembly_bytes_max) + " bytes"};
  else if (in.getTransferToken().size() != transfer::transfer_token_bytes)
    why = {{"bad_token", "the job has no transfer token"}, status_internal, false};
  else if (kind != job_kind::whole && !options.hand_over)
    why = {{"wrong_role", options.self.name + " hands no KV over, its pool's role is \"both\""},
           status_internal,
           true};
  if (!why.why.code.empty()) {
    reject(key, reply_to, why);
    return nullptr;
  }
  job j;
  j.id = next_job++;
  j.key = key;
  j.kind = kind;
  j.reply_to = reply_to;
  j.lease = std::chrono::milliseconds{in.getLeaseMs()};
  j.lease_until = now() + j.lease;
  j.deadline = now() + std::chrono::milliseconds{in.getDeadlineMs()};
  j.content = *std::move(content);
  j.part_came = now();
  for (auto h : in.getChain()) j.chain.push_back(h);
  j.prefix_scope = in.getPrefixScope();
  j.resume = read_resume(in.getResume());
  j.priority = in.getPriority();
  j.alone = in.getAlone();
  // A prefill or decode worker is probed on its own, too: a pair's failure would not say whose it
  // is.
  j.probe = in.getIsProbe() && kind == job_kind::whole &&
            in.getContent().getBytes() <= probe_content_bytes_max;
  auto token = in.getTransferToken();
  std::copy(token.begin(), token.end(), reinterpret_cast<kj::byte*>(j.token.data()));
  const auto made = jobs.emplace(j.id, std::move(j)).first;
  try {
    options.host->route(made->first, {key, reply_to});
    open.emplace(key, made->first);
  } catch (...) {
    options.host->forget(made->first);
    jobs.erase(made);
    throw;
  }
  assembling_bytes += made->second.content.bytes();
  idle_told = false;
  watch_soon();
  return &made->second;
}

/// A newer incarnation of a worker proves that the older one's process has ended: its buffers can
/// be used again.
void worker_state::note_peer(msg::WorkerRef::Reader peer) {
  if (!options.hand_over || peer.getName().size() == 0) return;
  if (peers.size() >= peers_max && !peers.contains(peer.getName().cStr()))
    peers.erase(peers.begin());
  auto& known = peers[peer.getName().cStr()];
  if (peer.getGeneration() <= known.first) return;
  if (known.first != 0) options.hand_over->worker_gone(known.second, true);
  auto address = peer.getTransferAddress();
  known = {peer.getGeneration(),
           {reinterpret_cast<const std::byte*>(address.begin()),
            reinterpret_cast<const std::byte*>(address.end())}};
}

void worker_state::take_part(msg::PromptPart::Reader in) {
  auto* j = find(msg::read(in.getKey()));
  if (!j || j->content.complete()) return;
  if (auto added = j->content.add(in.getOffset(), in.getBytes()); !added)
    return reject(*j, {added.error(), status_internal, true});
  j->part_came = now();
  msg::draft<msg::PartCredit> d;
  write(d->initKey(), j->key);
  d->setReceived(j->content.received());
  send(j->reply_to, std::move(d));
  if (j->content.complete()) content_is_here(*j);
}

void worker_state::content_is_here(job& j) {
  if (j.kind == job_kind::receive) return expect_kv(j);
  if (!j.probe) return offload(j, preparation_of(j));
  // Long prompts of others must not delay it; its own is a few bytes.
  auto p = preparation_of(j);
  j.offloaded = j.in_engine = true;
  submitted(prepare(std::move(p)));
}

preparation worker_state::preparation_of(job& j) {
  preparation p;
  p.id = j.id;
  p.key = j.key;
  p.kind = j.kind;
  p.priority = j.priority;
  p.alone = j.alone;
  p.probe = j.probe;
  p.chain = std::move(j.chain);
  p.prefix_scope = j.prefix_scope;
  p.resume = std::move(j.resume);
  assembling_bytes -= j.content.bytes();
  j.content_bytes = j.content.bytes();
  p.content = std::make_shared<kj::Array<capnp::word>>(j.content.take());
  j.content = {};
  p.text = options.text;
  p.host = options.host;
  p.context = std::min(options.host->info().context_tokens, options.self.context_tokens);
  p.unwanted = j.unwanted;
  return p;
}

void worker_state::offload(job& j, preparation p) {
  auto shared = std::make_shared<preparation>(std::move(p));
  const bool taken = options.offload([shared, me = caf::actor_cast<caf::actor>(self)] {
    caf::anon_send(me, prepare(std::move(*shared)));
  });
  if (taken) {
    // The engine may have it, and be done with it, before the tokeniser's thread can say so.
    j.offloaded = j.in_engine = true;
    return;
  }
  if (j.kind == job_kind::receive)
    options.hand_over->refuse(j.key, {"queue_full", options.self.name + " is too busy"});
  reject(j, {{"queue_full", "too many prompts wait to be tokenised at " + options.self.name},
             status_unavailable,
             true});
}

void worker_state::submitted(const prepared& x) {
  auto* j = find(x.id);
  if (!j) return;
  j->offloaded = false;
  if (x.refused) {
    j->in_engine = false;
    if (!j->ended) {
      if (j->kind == job_kind::receive) options.hand_over->refuse(j->key, x.refused->why);
      return reject(*j, *x.refused);
    }
    return reap(*j);
  }
  if (j->kind != job_kind::receive && x.prompt_tokens > 0 && !j->probe) {
    const auto per_token = static_cast<float>(x.content_bytes) /
                           static_cast<float>(x.prompt_tokens);
    bytes_per_token = bytes_per_token == 0 ? per_token : 0.9F * bytes_per_token + 0.1F * per_token;
  }
  if (j->ended) {
    // The cancel may have reached the engine before the job did.
    options.host->engine().cancel(j->id);
    return reap(*j);
  }
  j->plan = x.plan;
  j->max_tokens = x.max_tokens;
  j->choices = x.choices;
  if (j->kind == job_kind::prefill) hand_over(*j, std::move(*x.offer));
}

// -- hand-over ----------------------------------------------------------------------

void worker_state::hand_over(job& j, transfer::offer_of_kv offer) {
  transfer::outgoing out;
  out.key = j.key;
  out.token = j.token;
  out.peer = j.peer;
  out.where = j.same_host ? transfer::proximity::same_host : transfer::proximity::other_host;
  out.job = j.id;
  out.offer = std::move(offer);
  transfer::send_callbacks calls;
  auto me = caf::actor_cast<caf::actor>(self);
  calls.on_granted = [host = options.host, id = j.id](engine::position keep) {
    host->engine().grant_delivery(id, keep);
  };
  calls.on_done = [me, id = j.id](transfer::transfer_stats stats) {
    caf::anon_send(me, hand_over_done{id, std::move(stats)});
  };
  calls.on_failed = [me, id = j.id](error why) {
    caf::anon_send(me, hand_over_failed{id, std::move(why)});
  };
  if (auto started = options.hand_over->start_send(std::move(out), std::move(calls)); !started)
    return fail(j, started.error(), status_unavailable, true);
  j.handing_over = true;
}

void worker_state::expect_kv(job& j) {
  transfer::receive_callbacks calls;
  auto me = caf::actor_cast<caf::actor>(self);
  calls.on_open = [me, id = j.id](transfer::offer_of_kv offer) {
    caf::anon_send(me,
                   hand_over_opened{id, std::make_shared<transfer::offer_of_kv>(std::move(offer))});
  };
  calls.on_piece = [host = options.host](engine::kv_piece piece) {
    host->engine().import_piece(std::move(piece));
  };
  calls.on_end = [me, id = j.id](const transfer::transfer_stats&) {
    caf::anon_send(me, hand_over_complete{id});
  };
  calls.on_failed = [me, id = j.id](error why) {
    caf::anon_send(me, hand_over_failed{id, std::move(why)});
  };
  if (auto expecting = options.hand_over->expect({j.key, j.token, j.id}, std::move(calls));
      !expecting)
    return reject(j, {expecting.error(), status_unavailable, true});
  j.handing_over = true;
}

void worker_state::opened(const hand_over_opened& x) {
  auto* j = find(x.job);
  if (!j || j->ended) return;
  const bool quick = x.offer->plan.grammar.empty() && j->resume.empty();
  auto p = preparation_of(*j);
  p.offer = x.offer;
  if (!quick) return offload(*j, std::move(p));
  // Nothing to compile and nothing to replay: a detour would only cost time to the first token.
  j->offloaded = j->in_engine = true;
  submitted(prepare(std::move(p)));
}

void worker_state::complete(const hand_over_complete& x) {
  if (auto* j = find(x.job)) {
    j->all_received = true;
    adopt_if_complete(*j);
  }
}

void worker_state::adopt_if_complete(job& j) {
  const bool early = planted::is(planted::bug::adopt_early);
  if ((!j.adopted && !early) || (!j.all_received && !early) || !j.handing_over) return;
  options.hand_over->adopted(j.key);
  j.handing_over = false;
  reap(j);
}

void worker_state::delivered(const hand_over_done& x) {
  auto* j = find(x.job);
  if (!j) return;
  j->handing_over = false;
  j->delivered = true;
  j->stats = x.stats;
  tell_prefilled_if_complete(*j);
}

void worker_state::tell_prefilled_if_complete(job& j) {
  if (j.ended) return reap(j);
  if (!j.computed || !j.delivered) return;
  msg::draft<msg::PrefillDone> d;
  write(d->initKey(), j.key);
  d->setWorker(options.self.name);
  d->setQueueUs(static_cast<std::uint64_t>(j.queue_time.count()));
  d->setComputeUs(static_cast<std::uint64_t>(j.compute_time.count()));
  d->setTransferBytes(j.stats.bytes);
  d->setTransferUs(static_cast<std::uint64_t>(j.stats.moving.count()));
  d->setExposedUs(static_cast<std::uint64_t>(j.stats.exposed.count()));
  d->setWireUs(static_cast<std::uint64_t>(j.stats.on_wire.count()));
  d->setPieces(j.stats.pieces);
  d->setFromToken(j.stats.from);
  d->setToToken(j.stats.to);
  d->setCachedTokens(j.cached);
  d->setTransport(j.stats.transports.empty()
                      ? options.hand_over->transport_name()
                      : options.hand_over->transport_name() + ":" + j.stats.transports);
  engine::write(d->initCost(), j.cost);
  j.cost_told = true;
  send(j.reply_to, std::move(d));
  end_well(j);
}

void worker_state::tell_done(job& j) {
  msg::draft<msg::JobDone> d;
  write(d->initKey(), j.key);
  d->setWorker(options.self.name);
  engine::write(d->initCost(), j.cost);
  j.cost_told = true;
  send(j.reply_to, std::move(d));
}

void worker_state::transfer_failed(const hand_over_failed& x) {
  auto* j = find(x.job);
  if (!j) return;
  j->handing_over = false;
  if (j->ended) return reap(*j);
  fail(*j, x.why, status_unavailable, true);
}

// -- from the engine ------------------------------------------------------------------

void worker_state::happened(engine_events& x) {
  for (const auto& [id, cost] : x.costs)
    if (auto* j = find(id)) j->cost += cost;
  for (auto id : x.adoptions)
    if (auto* j = find(id)) {
      j->adopted = true;
      adopt_if_complete(*j);
    }
  for (auto& d : x.departures) departed(d);
  for (const auto& s : x.stays) stays(s);
  for (const auto& p : x.prefills)
    if (auto* j = find(p.job)) {
      j->in_engine = false;
      j->computed = true;
      j->cached = p.cached;
      j->queue_time = p.queued;
      j->compute_time = p.computed;
      tell_prefilled_if_complete(*j);
    }
  // One message is one step: whoever is failed in it was in the same pass.
  const auto suspects = static_cast<std::uint32_t>(
      std::count_if(x.failures.begin(), x.failures.end(),
                    [](const auto& f) { return msg::is_engine_fault(f.why.code); }));
  for (auto& f : x.failures)
    if (auto* j = find(f.job)) {
      const bool fault = msg::is_engine_fault(f.why.code);
      if (fault) ++faults;
      j->in_engine = false;
      if (j->ended)
        reap(*j);
      else
        fail(*j, f.why, f.retryable ? status_unavailable : status_internal, f.retryable,
             fault ? suspects : 0);
    }
  for (const auto& f : x.given_up)
    if (auto* j = find(f.job); j && !j->ended)
      fail(*j, f.why, f.retryable ? status_unavailable : status_internal, f.retryable);
  for (auto id : x.ends)
    if (auto* j = find(id)) {
      j->in_engine = false;
      if (!j->ended) tell_done(*j);
      end_well(*j);
    }
  for (auto id : x.cancels)
    if (auto* j = find(id)) {
      j->in_engine = false;
      reap(*j);
    }
  if (!x.blocks_added.empty() || !x.blocks_dropped.empty())
    note_prefixes(x.blocks_added, x.blocks_dropped);
}

// -- ends --------------------------------------------------------------------------------

void worker_state::cancel(msg::CancelJobs::Reader in) {
  const std::string reason = in.getReason().size() > 0 ? in.getReason().cStr()
                                                       : "the request was cancelled";
  for (auto key : in.getKeys())
    if (auto* j = find(msg::read(key))) {
      spdlog::debug("event=job_cancelled worker={} reason=\"{}\"", options.self.name, reason);
      end(*j, {"cancelled", reason});
    }
}

void worker_state::renew(const link::origin& from, msg::RenewLeases::Reader in) {
  for (auto key : in.getKeys()) {
    if (auto* j = find(msg::read(key)))
      j->lease_until = now() + j->lease;
    else if (!is_leaving_as(msg::read(key)))
      tell_lost(from.from.name, msg::read(key));
  }
}

/// Its requester takes it for open: the job, or the word of its end, was on a link that ended, and
/// nobody else would ever tell. Of one that has ended otherwise the requester has heard by now.
void worker_state::tell_lost(const std::string& requester, const transfer::job_key& key) {
  msg::draft<msg::JobFailed> d;
  write(d->initKey(), key);
  d->setWorker(options.self.name);
  write_failure(d->initFailure(), {msg::job_lost, options.self.name + " does not have the job"},
                status_unavailable, true);
  send(requester, std::move(d));
}

/// Leases and deadlines: an isolated worker frees by itself what nobody asks for any more.
void worker_state::watch() {
  const auto t = now();
  std::vector<engine::job_id> lapsed, late, partial;
  for (const auto& [key, id] : open) {
    const auto& j = jobs.at(id);
    if (j.lease_until < t)
      lapsed.push_back(id);
    else if (j.deadline < t)
      late.push_back(id);
    else if (!j.content.complete() && t - j.part_came > assembly_silence_max)
      partial.push_back(id);
  }
  for (auto id : lapsed)
    fail(jobs.at(id), {"lease_lapsed", "nobody renewed the job's lease"}, status_unavailable, true);
  for (auto id : late)
    fail(jobs.at(id), {"deadline_exceeded", "the job did not end in time"}, status_timeout, false);
  for (auto id : partial)
    reject(jobs.at(id),
           {{"part_lost", "the next part of the prompt does not come"}, status_unavailable, true});
  look_for_stall();
  look_at_tokenisers();
  if (options.hand_over) options.hand_over->tick(t);
  if (draining && !stopping) offer_moves();
  if (stopping && jobs.empty()) stopped();
  watches_closely = false;
  // Prefill may have opened a hand-over before decode's job comes.
  if (jobs.empty() && (!options.hand_over || options.hand_over->read_gauges().early_opens == 0))
    watch_after(idle_watch_interval);
  else
    watch_soon();
}

void worker_state::watch_soon() {
  if (!std::exchange(watches_closely, true)) watch_after(watch_interval);
}

void worker_state::watch_after(std::chrono::milliseconds pause) {
  self->delayed_send(self, pause, watch_atom::value, ++watches);
}

/// A job that the engine forgot goes on elsewhere; whatever else the engine has, gets on.
void worker_state::look_for_stall() {
  if (planted::is(planted::bug::forget_stall)) return;
  const auto worst = options.host->engine().gauges().passed_over;
  auto* j = find(worst.job);
  if (!j || j->ended) return;
  const auto evidence = health::stall_of({worst.turns, worst.still}, options.stall);
  if (!evidence) return;
  ++stalls;
  spdlog::warn("event=job_stalled worker={} generation={} job={} stalls={} evidence=\"{}\"",
               options.self.name, options.self.generation, worst.job, stalls, *evidence);
  fail(*j, {msg::job_stalled, *evidence}, status_unavailable, true);
  report();
}

/// What tokenisers do not come back with goes on elsewhere. The watchdog sees the same and ends the
/// process, with all that it holds; but it may be lost, too.
void worker_state::look_at_tokenisers() {
  if (!options.preparing) return;
  const auto evidence = tokenisers.judge(options.preparing(), now());
  if (!evidence) return;
  std::vector<engine::job_id> theirs;
  for (const auto& [key, id] : open)
    if (jobs.at(id).offloaded) theirs.push_back(id);
  if (theirs.empty()) return;
  spdlog::warn("event=tokenisers_stuck worker={} generation={} jobs={} evidence=\"{}\"",
               options.self.name, options.self.generation, theirs.size(), *evidence);
  for (auto id : theirs)
    fail(jobs.at(id), {msg::tokenisers_stuck, "its worker is stuck " + *evidence},
         status_unavailable, true);
  report();
}

void worker_state::reject(const transfer::job_key& key, const std::string& reply_to,
                          const refusal& why) {
  spdlog::info("event=job_rejected worker={} code={} reason=\"{}\"", options.self.name,
               why.why.code, why.why.message);
  msg::draft<msg::Rejected> d;
  write(d->initKey(), key);
  d->setWorker(options.self.name);
  write_failure(d->initFailure(), why.why, why.http_status, why.retryable);
  send(reply_to, std::move(d));
}

/// The engine has not got it, and will not.
void worker_state::reject(job& j, const refusal& why) {
  reject(j.key, j.reply_to, why);
  j.cost_told = true;  // nothing was computed
  end(j, why.why);
}

void worker_state::fail(job& j, const error& why, int status, bool retryable,
                        std::uint32_t suspects) {
  spdlog::info("event=job_failed worker={} code={} reason=\"{}\"", options.self.name, why.code,
               why.message);
  msg::draft<msg::JobFailed> d;
  write(d->initKey(), j.key);
  d->setWorker(options.self.name);
  write_failure(d->initFailure(), why, status, retryable);
  d->setSuspects(suspects);
  if (!j.in_engine) {  // else it is not known before the engine has let go
    engine::write(d->initCost(), j.cost);
    j.cost_told = true;
  }
  send(j.reply_to, std::move(d));
  end(j, why);
}

/// Nobody wants it any more: engine and hand-over give back what they hold for it; the other leg's
/// worker is told by the hand-over.
void worker_state::end(job& j, const error& why) {
  if (!j.ended) {
    j.ended = true;
    *j.unwanted = true;
    open.erase(j.key);
    assembling_bytes -= j.content.bytes();
    j.content = {};
    if (j.in_engine) options.host->engine().cancel(j.id);
    if (j.handing_over) options.hand_over->cancel(j.key, why);
  }
  reap(j);
}

/// All is done; a hand-over whose end is still on its way is left to it.
void worker_state::end_well(job& j) {
  if (!j.ended) {
    j.ended = true;
    *j.unwanted = true;
    open.erase(j.key);
  }
  reap(j);
}

void worker_state::reap(job& j) {
  if (!j.ended || j.held()) return;
  // Nobody waits for the job any more, but its cost is to be booked.
  if (!j.cost_told && !j.probe) tell_done(j);
  options.host->forget(j.id);
  jobs.erase(engine::job_id{j.id});
  check_idle_soon();
}

job* worker_state::find(const transfer::job_key& key) {
  auto i = open.find(key);
  if (i == open.end() && planted::is(planted::bug::skip_attempt_check))
    i = std::find_if(open.begin(), open.end(), [&](const auto& x) {
      return x.first.id == key.id && x.first.prompt == key.prompt;
    });
  return i == open.end() ? nullptr : &jobs.at(i->second);
}

job* worker_state::find(engine::job_id id) {
  auto i = jobs.find(id);
  return i == jobs.end() ? nullptr : &i->second;
}

}  // namespace troupe::workers
