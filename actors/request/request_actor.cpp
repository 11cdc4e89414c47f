#include "actors/request/request_actor.hpp"

#include "actors/directory/readiness.hpp"
#include "actors/request/fingerprint.hpp"
#include "actors/request/leg.hpp"
#include "actors/router/router_policy.hpp"
#include "gpu/engine/job_cost_wire.hpp"
#include "messages/base/planted.hpp"
#include "messages/finish_reason.hpp"
#include "messages/job_codes.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

namespace troupe::request {

namespace {

using again_atom = caf::atom_constant<caf::atom("rqagain")>;
using leave_atom = caf::atom_constant<caf::atom("rqleave")>;

using time_point = retry_budget::time_point;

/// The timeline of a request of more attempts, as one of many prompts has, is told so often at
/// most.
constexpr std::size_t attempts_told_at_once = 8;
constexpr std::chrono::milliseconds timeline_pause{100};

struct request_state {
  caf::event_based_actor* self;
  caf::actor hub;
  std::shared_ptr<const request_context> context;
  std::shared_ptr<submission> what;
  std::shared_ptr<ticket> place;
  std::vector<leg> legs;
  timeline account;
  time_point told_at{};  ///< the store has it as it was then
  bool untold = false;   ///< something has changed since
  work_log work;
  caf::actor_clock::time_point begun;
  caf::actor_clock::time_point deadline;
  bool over = false;
  bool owed = false;  ///< costs may be on their way here
  static constexpr const char* name = "request";

  explicit request_state(caf::event_based_actor* s) : self(s) {}
  ~request_state() {
    // Whatever ended the actor (a kill, an exception), its client is told.
    if (what && !over)
      tell_failure({500, "internal_error", "The request was ended by an internal error.", "", {}});
  }

  // -- beginning -----------------------------------------------------------------

  // Not called `begin`: CAF would take a state with that for a container.
  void set_out() {
    begun = self->clock().now();
    deadline = begun + what->timeout - what->waited;
    account.id = what->external_id;
    account.request = what->id;
    account.tenant = what->tenant;
    account.waited_ms = std::chrono::duration<double, std::milli>(what->waited).count();
    account.model = what->model;
    account.status = "running";
    for (std::size_t i = 0; i < what->prompts.size(); ++i) {
      const auto prompt = static_cast<std::uint16_t>(i);
      legs.emplace_back(prompt, what->choices).way = find_way(*what, prompt);
    }
    for (auto& l : legs)
      if (!over) start_attempt(l);
    record();
  }

  job_key key_of(const leg& l) const { return {what->id, l.prompt, l.attempt}; }
  /// The fence: null for what belongs to another attempt, which has no effect.
  leg* find_attempt(const job_key& key) {
    if (key.prompt >= legs.size()) return nullptr;
    auto& l = legs[key.prompt];
    if (planted::is(planted::bug::skip_attempt_check)) return &l;
    return l.attempt == key.attempt ? &l : nullptr;
  }
  leg* find(const job_key& key) {
    auto* l = find_attempt(key);
    return l && !l->finished && !over ? l : nullptr;
  }
  attempt_record& record_of(leg& l) { return account.attempts[l.record]; }
  void begin_record(leg& l) {
    if (l.records == attempt_records_max) return;
    ++l.records;
    l.record = account.attempts.size();
    account.attempts.emplace_back();
  }

  void start_attempt(leg& l) {
    l.pausing = false;
    if (l.suspected.must_be_alone()) l.last_alone = l.attempt;
    if (!std::exchange(l.waited, false)) begin_record(l);
    record_of(l) = {};
    record_of(l).prompt = l.prompt;
    if (auto unsent = ask_for_route(l, key_of(l))) fail(unsendable(*unsent));
  }

  /// Error: the question is too large for a message.
  std::optional<error> ask_for_route(leg& l, const job_key& attempt,
                                     const std::string& move_from = {}) {
    auto shard = next_shard(l);
    if (move_from.empty()) l.asked = shard.name;
    auto e = make_route_request(*what, l, attempt, context->self.name, shard.by, move_from);
    if (!e) return std::move(e).error();
    // First: the answer goes to the hub, too.
    self->send(hub, route_awaited{attempt, shard.name, shard.generation});
    context->office->send({std::move(shard.name), 0}, context->self, *std::move(e));
    return std::nullopt;
  }

  /// Where all have refused, or are gone by now, it begins with the first one again.
  chosen_shard next_shard(leg& l) const {
    const auto all = context->view->get();
    const auto way = l.way_now(what->model);
    if (!l.refused.empty()) {
      if (auto other = other_shard(*context->shards, *all, *context->silent, way, l.refused, now()))
        return *std::move(other);
      l.refused.clear();
    }
    return choose_shard(*context->shards, *all, *context->silent, way, l.shards_tried, now());
  }
  /// Whether one has not been asked yet, after this one knows nobody.
  bool others_may_know(leg& l) const {
    l.refused.push_back(l.asked);
    if (other_shard(*context->shards, *context->view->get(), *context->silent,
                    l.way_now(what->model), l.refused, now()))
      return true;
    l.refused.clear();
    return false;
  }

  /// Whether this node's own directory shows engines that could serve it together.
  bool sees_engines() const {
    return directory::readiness_of(what->model, *context->view->get()).ready();
  }

  /// A lost shard is none that was asked in vain: the directory doesn't show it any more.
  void no_route(const route_late& x) {
    if (auto* l = find_move(x.attempt); l && !l->move->route) {
      if (x.silent) ++l->shards_tried;
      return l->move.reset();
    }
    auto* l = find(x.attempt);
    if (!l || l->route) return;
    if (x.silent) ++l->shards_tried;
    end_attempt(*l, attempt_end::router_silent, "",
                {503, "router_unavailable", "The router does not answer; try again.", "",
                 std::chrono::milliseconds{1'000}});
  }

  /// Another attempt, or the request's end.
  void end_attempt(leg& l, attempt_end how, const std::string& worker, const failure& why,
                   bool retryable = true) {
    record_of(l).error = why.code + ": " + why.message;
    if (is_counted(how)) ++l.failed;
    auto name_of = [](const auto& job) { return job ? job->worker().name : std::string{}; };
    auto next = decide({.how = how,
                        .number = l.failed,
                        .client_reads = l.accepted,
                        .retryable = retryable,
                        .seen_here = why.code == router::no_ready_worker && sees_engines(),
                        .worker = worker,
                        // Another shard may know of others, and says so at once.
                        .avoided = l.failed > 1 && l.avoids(worker) && !others_may_know(l),
                        .prefill = name_of(l.prefill),
                        .decode = name_of(l.decode),
                        .why = why,
                        .hopeless = hopeless_for(l)});
    if (!next.again) return fail(why);
    if (is_repetition(how)) {
      if (l.accepted)
        next.pause = std::max(next.pause, context->retries->pace(now()));
      else if (!context->retries->try_take(now()))
        return fail(no_more_retries(why));
    }
    for (const auto& name : next.exclude) l.avoid(name);
    spdlog::info(
        "event=attempt_failed request={} prompt={} attempt={} worker={} code={} reason=\"{}\"",
        what->external_id, l.prompt, l.attempt, worker, why.code, why.message);
    l.waited = how == attempt_end::quarantine_full;
    guess_costs(l);
    l.drop_attempt();
    l.attempt = l.next_attempt();  // at once: what the old one still says is too late, too
    if (next.pause.count() == 0) return start_attempt(l);
    l.pausing = true;
    self->delayed_send(self, next.pause, again_atom::value, l.prompt, l.attempt);
  }

  // -- what it costs ----------------------------------------------------------------

  /// What the running attempt's jobs must have cost, by what came of them.
  void guess_costs(const leg& l) {
    if (!l.decode) return;
    std::vector<choice_work> choices;
    for (const auto& c : l.ledger.lengths()) {
      const auto before = choices.size() < l.came_before.size() ? l.came_before[choices.size()] : 0;
      choices.push_back({before, c.tokens - before});
    }
    const auto cached = l.attempt == l.cached_attempt ? l.cached_tokens : 0;
    const bool prefilled = l.came_tokens > 0;
    const auto key = key_of(l);
    work.guess(l.decode->worker().name, key,
               guessed_cost(l.prompt_tokens, cached, choices, prefilled && !l.prefill));
    // Of a stream that was moved the other worker had it all.
    if (!l.prefill || !prefilled || l.moved_here) return;
    for (auto& c : choices) c.came = 0;
    work.guess(l.prefill->worker().name, key, guessed_cost(l.prompt_tokens, cached, choices, true));
  }

  /// Also of an attempt that is over: its jobs' costs come late.
  template <class Schema>
  void note_cost(typename Schema::Reader in) {
    if (in.hasCost())
      note_cost({in.getWorker().cStr(), msg::read(in.getKey()), engine::read(in.getCost())});
  }
  void note_cost(cost_told x) {
    if (over)  // the hub may have passed it on before it heard of the end
      self->send(hub, std::move(x));
    else
      work.told(x.worker, x.key, x.cost);
  }

  time_point now() const { return time_point{self->clock().now().time_since_epoch()}; }

  static failure no_more_retries(const failure& why) {
    return {503, "retry_budget_exhausted",
            "The attempt failed (" + why.code +
                "), and this node repeats as many as it may; try again later.",
            "", std::chrono::milliseconds{1'000}};
  }

  // -- crashes ----------------------------------------------------------------------

  /// It may be older news than the end of the attempt, which other ways tell, too.
  void suspect(const crash_suspected& x) {
    if (over || x.key.prompt >= legs.size()) return;
    auto& l = legs[x.key.prompt];
    if (l.finished || x.key.attempt > l.attempt) return;
    const bool alone = x.key.attempt == l.last_alone;
    const auto verdict = l.suspected.crashed(x.suspects, alone);
    spdlog::warn("event=crash_suspected request={} prompt={} attempt={} engine={} suspects={} "
                 "alone={} verdict={}",
                 what->external_id, l.prompt, x.key.attempt, x.engine, x.suspects, alone,
                 static_cast<int>(verdict));
    if (verdict == suspicion::verdict::convicted) return convict(l, x);
    // The attempt that the crash has ended is told so by the directory. A later one that runs
    // beside others would take them along.
    if (verdict == suspicion::verdict::alone && x.key.attempt != l.attempt && !l.alone() &&
        !l.pausing)
      end_attempt(l, attempt_end::under_suspicion, "",
                  {503, "under_suspicion", "It may have crashed " + x.engine + ".", "", {}});
  }

  /// What computes failed it: the engine, or whoever computed the KV that it has, or the prompt.
  suspicion::verdict engine_fault(leg& l, const std::string& worker, std::uint32_t suspects) {
    std::vector<std::string> engines{worker};
    if (l.prefill && l.prefill->worker().name != worker)
      engines.push_back(l.prefill->worker().name);
    const auto verdict = l.suspected.faulted(suspects, l.alone(), engines);
    spdlog::warn("event=fault_suspected request={} prompt={} attempt={} engine={} suspects={} "
                 "alone={} verdict={}",
                 what->external_id, l.prompt, l.attempt, worker, suspects, l.alone(),
                 static_cast<int>(verdict));
    return verdict;
  }
  void fail_for_good(leg& l, const std::string& worker, const failure& why) {
    record_of(l).error = why.code + ": " + why.message;
    fail(not_computable(worker +
                        ", like another engine before, could not do so though it computed "
                        "nothing else (" +
                        why.code + ")"));
  }

  void convict(const leg& l, const crash_suspected& x) {
    spdlog::error("event=request_convicted request={} prompt={} engine={} reason=\"{}\"",
                  what->external_id, l.prompt, x.engine, x.reason);
    msg::draft<msg::PoisonNotice> d;
    d->setFingerprint(fingerprint(*what->prompts[l.prompt]));
    d->setForMs(static_cast<std::uint32_t>(poison_refused_for.count()));
    const auto notice = std::move(d).freeze().value();
    context->office->send(context->self, context->self, notice);
    const auto all = context->view->get();
    for (const auto& [name, e] : *all)
      if (e.role == msg::Role::REQUESTS && name != context->self.name)
        context->office->send({name, 0}, context->self, notice);
    fail(crashes_engines(x.engine + " " + x.reason + " while it computed nothing else"));
  }

  // -- routing ---------------------------------------------------------------------

  void routed(const route_given& x) {
    msg::view<msg::Route> route{x.route};
    const auto key = msg::read(route->getKey());
    if (route->getPlan() == msg::TransferPlan::MOVE) return place_found(x, key, *route);
    // A router that does not know of moves.
    if (auto* l = find_move(key); l && !l->move->route) return l->move.reset();
    auto* l = find(key);
    if (!l || l->route) return;  // a lease for an attempt that is over goes straight back
    l->route = x.lease;
    l->shards_tried = 0;
    l->hopeless_since.reset();
    if (!l->avoids(route->getDecode().getName().cStr()) &&
        !l->avoids(route->getPrefill().getName().cStr()))
      l->refused.clear();
    auto& r = record_of(*l);
    r.plan = name_of(route->getPlan());
    r.route_reason = route->getReason().cStr();
    r.decode_worker = route->getDecode().getName().cStr();
    const auto& content = *what->prompts[l->prompt];
    const auto terms = terms_of(key, one_time_token(), l->alone());
    const bool apart = route->getPrefill().getName().size() > 0;
    auto decode = make_decode_job(terms, content, l->ledger, !apart, *route);
    if (!decode) return fail(unsendable(decode.error()));
    l->decode = send_and_hold(route->getDecode(), key, *std::move(decode));
    l->reader = l->decode->worker();
    if (apart) {
      r.prefill_worker = route->getPrefill().getName().cStr();
      auto prefill = make_prefill_job(terms, content, l->ledger, *route);
      if (!prefill) return fail(unsendable(prefill.error()));
      l->prefill = send_and_hold(route->getPrefill(), key, *std::move(prefill));
      l->reader = l->prefill->worker();
    }
    if (content.bytes() > part_bytes) send_parts(*l, 0);
    record();
    check_workers(*l);
  }

  /// A route may be older than what this node knows. The jobs are in the book before this looks, so
  /// that a change is seen here or told by the hub.
  void check_workers(leg& l) {
    const auto all = context->view->get();
    for (const auto* job : {&l.decode, &l.prefill}) {
      if (!*job) continue;
      const auto& w = (*job)->worker();
      const auto i = all->find(w.name);
      if (i != all->end() && i->second.generation == w.generation && may_work(i->second.state))
        continue;
      const std::string worker = w.name;
      return end_attempt(l, attempt_end::worker_unknown, worker,
                         {503, "worker_unknown",
                          worker + " was chosen, but it is not there (any more).", "",
                          std::chrono::milliseconds{1'000}});
    }
  }

  /// Into the book only when it is sent: the hub renews what is there, and a renewal that overtakes
  /// its job is answered as that of a lost one.
  template <class Job>
  std::unique_ptr<held_job> send_and_hold(msg::WorkerRef::Reader worker, const job_key& key,
                                          Job job) {
    const msg::address to{worker.getName().cStr(), worker.getGeneration()};
    context->office->send(to, context->self, std::move(job));
    work.opened(to.name, to.generation, key);
    return std::make_unique<held_job>(context->office, context->jobs, context->self, to, key);
  }

  std::chrono::milliseconds hopeless_for(const leg& l) const {
    if (!l.hopeless_since) return {};
    return std::chrono::duration_cast<std::chrono::milliseconds>(now() - *l.hopeless_since);
  }

  void refused(const msg::envelope<msg::RouteRefused>& e) {
    msg::view<msg::RouteRefused> in{e};
    const auto key = msg::read(in->getKey());
    if (auto* l = find_move(key); l && !l->move->route) {
      l->shards_tried = 0;
      return l->move.reset();
    }
    auto* l = find(key);
    // Or the same number was asked about twice, for a move, and another shard has given a place.
    if (!l || l->route) return;
    l->shards_tried = 0;
    const auto why = read(in->getFailure());
    if (why.code != router::engines_given_up)
      l->hopeless_since.reset();
    else if (!l->hopeless_since)
      l->hopeless_since = now();
    // A shard may have lost sight of workers that others see.
    const bool its_own = why.code == router::no_ready_worker ||
                         why.code == router::router_overloaded ||
                         why.code == router::engines_given_up;
    end_attempt(*l,
                why.code == router::quarantine_full ? attempt_end::quarantine_full
                : its_own && others_may_know(*l)    ? attempt_end::shard_refused
                                                    : attempt_end::route_refused,
                "", why);
  }

  void send_parts(leg& l, std::size_t received) {
    const auto& content = *what->prompts[l.prompt];
    while (l.sent_bytes < content.bytes() &&
           l.sent_bytes < received + parts_ahead_max * part_bytes) {
      auto part = make_part(key_of(l), content, l.sent_bytes);
      if (!part) return fail(unsendable(part.error()));
      l.sent_bytes = std::min(content.bytes(), l.sent_bytes + part_bytes);
      context->office->send(l.reader, context->self, *std::move(part));
    }
  }

  // -- from workers ------------------------------------------------------------------

  void accepted(const msg::envelope<msg::Accepted>& e) {
    msg::view<msg::Accepted> in{e};
    auto* l = find(msg::read(in->getKey()));
    if (!l) return;
    if (l->accepted)
      return;  // the client knows; work that a failover repeats is nobody's cached token
    l->accepted = true;
    l->prompt_tokens = in->getPromptTokens();
    l->cached_tokens = in->getCachedTokens();
    l->cached_attempt = l->attempt;
    what->client->on_accepted(l->prompt, l->prompt_tokens, l->cached_tokens,
                              {in->getEchoText().begin(), in->getEchoText().size()});
    for (const auto& x : std::exchange(l->early, {}))
      slice(x);  // those of an attempt that breaks on the way are dropped by the fence
  }

  /// `Rejected` and `JobFailed`: this worker holds nothing of the job any more.
  template <class Schema>
  void job_ended_badly(const msg::envelope<Schema>& e) {
    msg::view<Schema> in{e};
    const auto key = msg::read(in->getKey());
    const std::string worker = in->getWorker().cStr();
    if constexpr (std::is_same_v<Schema, msg::JobFailed>)
      note_cost<Schema>(*in);
    else
      note_cost({worker, key, {}});  // nothing was computed
    // The worker never heard of the move, and offers the stream again while it drains.
    if (auto* l = find_move(key);
        l && l->move->source && l->move->source->worker().name == worker) {
      l->move->source->done();
      return l->move.reset();
    }
    auto* l = find_attempt(key);
    if (!l || over) return;
    if (!open_at(*l, worker)) return;  // its end has been told before, by itself or by others
    close_job(*l, worker);
    if (l->finished) return;
    // Of prefill only the word of its end was lost: decode has what it needs.
    if (in->getFailure().getCode() == msg::job_lost && l->came_tokens > 0 &&
        l->decode->worker().name != worker)
      return;
    if constexpr (std::is_same_v<Schema, msg::JobFailed>)
      if (msg::is_engine_fault(in->getFailure().getCode().cStr()) &&
          engine_fault(*l, worker, in->getSuspects()) == suspicion::verdict::convicted)
        return fail_for_good(*l, worker, read(in->getFailure()));
    end_attempt(*l, attempt_end::job_ended, worker, read(in->getFailure()),
                in->getFailure().getRetryable());
  }

  /// What an attempt computes again, after another's tokens, says nothing of the prompt's blocks.
  static held_route::outcome outcome_of(const leg& l, std::uint32_t cached) {
    held_route::outcome out;
    if (l.accepted && l.attempt == l.cached_attempt) {
      out.prompt_tokens = l.prompt_tokens;
      out.cached_tokens = cached;
    }
    return out;
  }

  void prefilled(const msg::envelope<msg::PrefillDone>& e) {
    msg::view<msg::PrefillDone> in{e};
    note_cost<msg::PrefillDone>(*in);
    auto* l = find_attempt(msg::read(in->getKey()));
    if (!l) return;
    close_job(*l, in->getWorker().cStr());
    auto& r = record_of(*l);
    fill(r, *in);
    if (l->route) {
      auto what = outcome_of(*l, r.prefill_cached_tokens);
      what.transfer_bytes = in->getWireUs() > 0 ? r.transfer_bytes : 0;
      what.wire_us = in->getWireUs();
      l->route->prefill_done(what);
    }
    // `Accepted` came before the engine had looked; of a repetition nothing was saved for the
    // client.
    if (!l->finished && l->attempt == l->cached_attempt)
      l->cached_tokens = std::max(l->cached_tokens, r.prefill_cached_tokens);
    record();
    if (leave_when_told() || l->accepted || !find(key_of(*l))) return;
    lost_acceptance(*l, in->getWorker().cStr());
  }

  void job_done(const msg::envelope<msg::JobDone>& e) {
    msg::view<msg::JobDone> in{e};
    note_cost<msg::JobDone>(*in);
    auto* l = find_attempt(msg::read(in->getKey()));
    if (!l) return;
    const std::string worker = in->getWorker().cStr();
    close_job(*l, worker);
    if (!find(key_of(*l)) || !l->decode || l->decode->worker().name != worker) return;
    // It comes after the worker's last batch. Early ones are here, and wait for prefill's word.
    if (l->early.empty())
      end_attempt(*l, attempt_end::stream_broken, worker,
                  {500, "token_gap", "A worker ended without the last tokens.", "", {}});
    else if (!l->prefill || !l->prefill->open())
      lost_acceptance(*l, worker);
  }

  /// Whoever has done its share has accepted the prompt before: a link has lost the word. With no
  /// job left nobody would ever say so.
  void lost_acceptance(leg& l, const std::string& worker) {
    end_attempt(l, attempt_end::stream_broken, worker,
                {503, "acceptance_lost", "The word that the prompt is accepted got lost.", "", {}});
  }

  static bool open_at(const leg& l, const std::string& worker) {
    auto at = [&](const auto& job) { return job && job->open() && job->worker().name == worker; };
    return at(l.prefill) || at(l.decode);
  }
  void close_job(leg& l, const std::string& worker) {
    for (auto* job : {&l.prefill, &l.decode})
      if (*job && (*job)->worker().name == worker) (*job)->done();
  }

  void slice(const batch_slice& x) {
    msg::view<msg::TokenBatch> batch{x.batch};
    auto delta = batch->getStreams()[x.index];
    auto* l = find(msg::read(delta.getKey()));
    if (!l || !l->decode || batch->getGeneration() != l->decode->worker().generation) return;
    if (!l->accepted) {
      if (l->early.size() >= early_slices_max)
        return end_attempt(*l, attempt_end::stream_broken, l->decode->worker().name,
                           {500,
                            "not_accepted",
                            "A worker sent tokens of a prompt that nobody had accepted.",
                            "",
                            {}});
      l->early.push_back(x);
      return;
    }
    switch (l->ledger.take(delta)) {
    case stream_ledger::verdict::duplicate:
      if (planted::is(planted::bug::duplicate_token)) break;
      return;
    case stream_ledger::verdict::gap:
      return end_attempt(*l, attempt_end::stream_broken, l->decode->worker().name,
                         {500, "token_gap", "A worker skipped tokens.", "", {}});
    case stream_ledger::verdict::fresh:
      break;
    }
    const bool first = l->came_tokens == 0;
    l->came_tokens += delta.getIds().size();
    if (l->came_tokens >= l->survival_tokens(what->choices)) got_on(*l);
    if (account.ttft_ms < 0) account.ttft_ms = elapsed_ms();
    what->client->on_delta(l->prompt, delta);
    if (!l->ledger.all_done()) {
      if (first && l->route && !l->prefill)
        l->route->prefill_done(
            outcome_of(*l, l->cached_attempt == l->attempt ? l->cached_tokens : 0));
      return;
    }
    if (delta.hasCost())
      work.told(l->decode->worker().name, key_of(*l), engine::read(delta.getCost()));
    finish(*l);
  }

  /// What ended earlier attempts is behind.
  void got_on(leg& l) {
    l.failed = 0;
    if (!l.suspected.any()) return;
    l.suspected.survived();
    if (l.alone() && l.route) l.route->cleared();
    l.last_alone = 0;
  }

  // -- moves --------------------------------------------------------------------------

  /// Whose stream would go on with this attempt, if it is still arranged.
  leg* find_move(const job_key& next) {
    if (over || next.prompt >= legs.size()) return nullptr;
    auto& l = legs[next.prompt];
    return !l.finished && l.move && l.move->attempt == next.attempt ? &l : nullptr;
  }

  void move_notice(const msg::envelope<msg::MoveNotice>& e) {
    msg::view<msg::MoveNotice> in{e};
    auto* l = find(msg::read(in->getKey()));
    if (!l || !l->decode || l->decode->worker().name != in->getWorker().cStr()) return;
    switch (in->which()) {
    case msg::MoveNotice::WANTED:
      return seek_place(*l);
    case msg::MoveNotice::MOVING:
      if (l->move && l->move->source && l->move->attempt == in->getMoving()) go_on_elsewhere(*l);
      return;
    case msg::MoveNotice::REFUSED:
      if (!l->move || !l->move->source) return;
      l->move->source->done();
      return l->move.reset();
    }
  }

  void seek_place(leg& l) {
    // One under suspicion must not be brought among others.
    if (l.move || !l.accepted || what->choices != 1 || l.suspected.any()) return;
    const job_key next{what->id, l.prompt, l.next_move()};
    if (ask_for_route(l, next, l.decode->worker().name)) return;
    l.move.emplace().attempt = l.move_attempt = next.attempt;
  }

  void place_found(const route_given& x, const job_key& next, msg::Route::Reader place) {
    auto* l = find_move(next);
    if (!l || l->move->route || l->decode->worker().name != place.getPrefill().getName().cStr())
      return;
    l->shards_tried = 0;
    auto& m = *l->move;
    m.token = one_time_token();
    // What would not fit into a message stays where it is.
    if (!make_decode_job(terms_of(next, m.token), *what->prompts[l->prompt], l->ledger, false,
                         place))
      return l->move.reset();
    m.route = x.lease;
    m.place = x.route;
    context->office->send(l->decode->worker(), context->self,
                          make_move_job(key_of(*l), m, place.getDecode()));
    m.source = std::make_unique<held_job>(context->office, context->jobs, context->self,
                                          l->decode->worker(), next);
  }

  /// The worker has stopped, and all its tokens are here: it is now the prefill leg of the next
  /// attempt.
  void go_on_elsewhere(leg& l) {
    auto m = *std::exchange(l.move, std::nullopt);
    msg::view<msg::Route> place{*m.place};
    record_of(l).moved = true;
    l.decode->done();
    guess_costs(l);
    work.renamed(l.decode->worker().name, key_of(l), {what->id, l.prompt, m.attempt});
    l.drop_attempt();
    l.moved_here = true;
    l.attempt = m.attempt;
    begin_record(l);
    auto& r = record_of(l);
    r = {};
    r.prompt = l.prompt;
    r.plan = name_of(place->getPlan());
    r.route_reason = place->getReason().cStr();
    r.prefill_worker = place->getPrefill().getName().cStr();
    r.decode_worker = place->getDecode().getName().cStr();
    const auto key = key_of(l);
    auto decode = make_decode_job(terms_of(key, m.token), *what->prompts[l.prompt], l.ledger, false,
                                  *place);
    if (!decode) return fail(unsendable(decode.error()));
    l.route = std::move(m.route);
    l.prefill = std::move(m.source);
    l.decode = send_and_hold(place->getDecode(), key, *std::move(decode));
    spdlog::info("event=stream_moved request={} prompt={} attempt={} from={} to={}",
                 what->external_id, l.prompt, l.attempt, r.prefill_worker, r.decode_worker);
    record();
    check_workers(l);
  }

  job_terms terms_of(const job_key& key, std::vector<std::uint8_t> token,
                     bool alone = false) const {
    return {key,   context->self.name, left(), context->lease, std::move(token),
            alone, what->prefix_scope};
  }

  // -- ends ----------------------------------------------------------------------------

  void finish(leg& l) {
    // The worker's JobDone is on its way and would only find a closed book: nothing to cancel.
    if (l.decode) l.decode->done();
    l.finished = true;
    l.move.reset();
    l.route.reset();
    if (!std::all_of(legs.begin(), legs.end(), [](const auto& x) { return x.finished; })) return;
    const auto* why = msg::finish_name(legs.front().ledger.finish());
    end("done", why == nullptr ? "" : why);
    what->client->on_finished(
        {account.prompt_tokens, account.cached_tokens, account.completion_tokens});
    if (planted::is(planted::bug::answer_twice)) what->client->on_finished({});
    let_go();
    // Prefill's account travels by another way and may be later than a short answer.
    if (prefills()) self->delayed_send(self, last_account_wait, leave_atom::value);
    leave_when_told();
  }
  bool prefills() const {
    return std::any_of(legs.begin(), legs.end(),
                       [](const auto& x) { return x.prefill && x.prefill->open(); });
  }
  bool leave_when_told() {
    if (!over || owed || prefills()) return false;
    if (untold) tell_timeline();
    self->quit();
    return true;
  }

  void fail(const failure& why) {
    if (over) return;
    tell_failure(why);
    leave();
  }
  /// Costs that are in the mailbox are still passed on.
  void leave() {
    let_go();
    for (auto& l : legs) l.drop_attempt();
    leave_when_told();
  }
  void tell_failure(const failure& why) {
    end("failed", why.code);
    spdlog::info("event=request_failed request={} model={} status={} code={} reason=\"{}\"",
                 what->external_id, what->model, why.http_status, why.code, why.message);
    what->client->on_failed(why);
  }

  /// The client went away: nobody to be told.
  void cancel(const std::string& reason) {
    if (over) return;
    end("cancelled", "cancelled");
    spdlog::info("event=request_cancelled request={} reason=\"{}\"", what->external_id, reason);
    leave();
  }

  void end(const char* status, std::string finish) {
    over = true;
    settle();
    account.status = status;
    account.finish = std::move(finish);
    account.total_ms = elapsed_ms();
    record();
    if (untold) tell_timeline();
  }
  /// Whatever has ended it: what it has cost goes to the books, once.
  void settle() {
    auto ended = std::make_shared<ended_request>();
    ended->id = what->id;
    ended->external_id = what->external_id;
    ended->tenant = what->tenant;
    ended->model = what->model;
    for (const auto& l : legs) {
      guess_costs(l);
      ended_request::prompt p{l.prompt_tokens, l.cached_tokens, {}};
      for (const auto& c : l.ledger.lengths())
        p.answers.push_back(
            {c.tokens, c.why != msg::FinishReason::NONE, c.why == msg::FinishReason::LENGTH});
      ended->prompts.push_back(std::move(p));
    }
    owed = work.owed() > 0;
    ended->work = std::exchange(work, {});
    caf::anon_send(hub, request_over{std::move(ended)});
  }
  /// What the client and the node's limits wait for; jobs and routes go with the legs.
  void let_go() {
    what->client.reset();
    place.reset();
  }

  void lost(const worker_gone& x) {
    work.lost(x.name, x.alive);
    for (auto& l : legs) {
      if (l.finished || over || !l.uses(x.name, x.alive)) continue;
      close_job(l, x.name);  // there is nobody left to cancel at
      end_attempt(l, attempt_end::worker_gone, x.name,
                  {503, "worker_lost", x.name + " is gone: " + x.reason, "",
                   std::chrono::milliseconds{1'000}});
    }
  }

  std::chrono::milliseconds left() const {
    return std::max(
        std::chrono::milliseconds{1},
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - self->clock().now()));
  }
  double elapsed_ms() const {
    return std::chrono::duration<double, std::milli>(self->clock().now() - begun).count();
  }

  void record() {
    if (!over) account.total_ms = elapsed_ms();
    account.prompt_tokens = account.cached_tokens = account.completion_tokens = 0;
    for (const auto& l : legs) {
      account.prompt_tokens += l.prompt_tokens;
      account.cached_tokens += l.cached_tokens;
      account.completion_tokens += l.ledger.sampled();
    }
    // All of it is copied, and each of its prompts has something to tell more than once.
    untold = account.attempts.size() > attempts_told_at_once && now() - told_at < timeline_pause;
    if (!untold) tell_timeline();
  }
  void tell_timeline() {
    untold = false;
    told_at = now();
    context->timelines->put(account);
  }
};

caf::behavior behavior(caf::stateful_actor<request_state>* self, caf::actor hub,
                       std::shared_ptr<const request_context> context,
                       std::shared_ptr<submission> what, std::shared_ptr<ticket> place) {
  auto& s = self->state;
  s.hub = std::move(hub);
  s.context = std::move(context);
  s.what = std::move(what);
  s.place = std::move(place);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  s.set_out();
  return {
      [self](const batch_slice& x) { self->state.slice(x); },
      [self](const route_given& x) { self->state.routed(x); },
      [self](const msg::envelope<msg::RouteRefused>& e) { self->state.refused(e); },
      [self](const msg::envelope<msg::Accepted>& e) { self->state.accepted(e); },
      [self](const msg::envelope<msg::Rejected>& e) { self->state.job_ended_badly(e); },
      [self](const msg::envelope<msg::PrefillDone>& e) { self->state.prefilled(e); },
      [self](const msg::envelope<msg::JobFailed>& e) { self->state.job_ended_badly(e); },
      [self](const msg::envelope<msg::JobDone>& e) { self->state.job_done(e); },
      [self](const msg::envelope<msg::MoveNotice>& e) { self->state.move_notice(e); },
      [self](const msg::envelope<msg::PartCredit>& e) {
        msg::view<msg::PartCredit> in{e};
        if (auto* l = self->state.find(msg::read(in->getKey())))
          self->state.send_parts(*l, in->getReceived());
      },
      [self](const worker_gone& x) { self->state.lost(x); },
      [self](const route_late& x) { self->state.no_route(x); },
      [self](const crash_suspected& x) { self->state.suspect(x); },
      [self](again_atom, std::uint16_t prompt, std::uint32_t attempt) {
        if (auto* l = self->state.find({self->state.what->id, prompt, attempt}))
          self->state.start_attempt(*l);
      },
      [self](const deadline_passed&) {
        const auto limit = self->state.what->timeout.count();
        self->state.fail(
            {504,
             "deadline_exceeded",
             "The request did not end within its limit of " + std::to_string(limit) + " ms.",
             "",
             {}});
      },
      [self](const cancel_request& x) { self->state.cancel(x.reason); },
      [self](const all_passed&) {
        self->state.owed = false;
        self->state.leave_when_told();
      },
      [self](leave_atom) { self->quit(); },
  };
}

}  // namespace

caf::actor spawn_request(caf::event_based_actor* hub,
                         std::shared_ptr<const request_context> context,
                         std::shared_ptr<submission> what, std::shared_ptr<ticket> place) {
  return hub->spawn<caf::monitored>(behavior, caf::actor_cast<caf::actor>(hub), std::move(context),
                                    std::move(what), std::move(place));
}

}  // namespace troupe::request
