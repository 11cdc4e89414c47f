#pragma once

// A node's request hub among actors that a test plays itself: the router, three workers and the
// directory. One clock, moved by the test.

#include "actors/request/hub.hpp"
#include "actors/request/hub_accounts.hpp"
#include "actors/request/request_actor.hpp"
#include "gpu/engine/job_cost_wire.hpp"
#include "messages/text.hpp"
#include "tests/support/deterministic_system.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace troupe::test {

using namespace std::chrono_literals;
using request::job_key;

/// The client: what it was told, in order.
struct recording_sink : request::client_sink {
  std::vector<std::string> said;
  std::map<std::pair<int, int>, std::vector<int>> ids;  ///< by prompt and choice
  std::vector<request::failure> failures;
  std::vector<request::totals> ends;

  std::vector<request::rate_standing> standings;

  void on_standing(const request::rate_standing& at) override { standings.push_back(at); }
  void on_accepted(std::uint16_t prompt, std::uint32_t tokens, std::uint32_t cached,
                   const std::string& echo) override {
    said.push_back("accepted " + std::to_string(prompt) + " " + std::to_string(tokens) + "/" +
                   std::to_string(cached) + (echo.empty() ? "" : " " + echo));
  }
  void on_delta(std::uint16_t prompt, msg::StreamDelta::Reader d) override {
    said.push_back("delta " + std::to_string(prompt));
    for (auto id : d.getIds()) ids[{prompt, d.getChoice()}].push_back(id);
  }
  void on_finished(const request::totals& sum) override {
    said.emplace_back("finished");
    ends.push_back(sum);
  }
  void on_failed(const request::failure& why) override {
    said.push_back("failed " + std::to_string(why.http_status) + " " + why.code);
    failures.push_back(why);
  }
};

struct route_asked {
  job_key key;
  std::vector<std::string> exclude;
  std::uint32_t resumed = 0;
  bool quarantine = false;
  std::string move_from;
};

/// A worker that a test plays.
struct played_worker {
  std::string name;
  std::uint64_t generation;
  caf::actor actor;
};

struct stage : deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor directory = capture();
  caf::actor router = capture();
  played_worker prefill{"prefill/p/a.0", 7, capture()};
  played_worker decode{"decode/p/b.0", 8, capture()};
  played_worker second{"decode/p/c.0", 9, capture()};
  played_worker both{"both/p/a.0", 10, capture()};
  directory::snapshot entries;
  request::hub hub;
  std::shared_ptr<prometheus::Registry> metrics = std::make_shared<prometheus::Registry>();
  std::uint64_t next_id = 1;
  std::uint64_t next_lease = 500;
  std::set<std::uint64_t> granted;

  explicit stage(std::uint32_t requests_max = 100,
                 const std::function<void(request::hub_options&, stage&)>& change = {}) {
    office->bind("router/0", 0, router);
    for (const auto* w : {&prefill, &decode, &second, &both}) {
      office->bind(w->name, w->generation, w->actor);
      auto& e = entries[w->name];
      e.name = w->name;
      e.generation = w->generation;
      e.role = msg::Role::BOTH;
      e.state = msg::EntryState::READY;
      e.model = "m";
      e.host = "a";
    }
    view->set(std::make_shared<directory::snapshot>(entries));
    request::hub_options o;
    o.host = "h";
    o.generation = 3;
    o.limits.requests_max = requests_max;
    o.models = {"m"};
    o.office = office;
    o.view = view;
    o.directory = directory;
    o.pools = {{"p", "m", std::nullopt}};
    o.metrics = metrics;
    if (change) change(o, *this);
    hub = request::make_hub(system, std::move(o));
    own(hub.actor);
    run();
  }

  // -- the client ------------------------------------------------------------------

  struct client {
    std::shared_ptr<recording_sink> sink;
    request::request_id id;
    std::string external_id;
  };
  struct wish {
    std::size_t prompts = 1;
    std::uint16_t choices = 1;
    std::chrono::milliseconds timeout = 60s;
    std::size_t prompt_bytes = 100;
    char letter = 'x';
    std::string tenant = {};
    std::uint32_t max_tokens = 0;
  };
  client submit() { return submit(wish{}); }
  client submit(const wish& w) {
    capnp::MallocMessageBuilder b;
    auto c = b.initRoot<msg::Completion>();
    c.setModel("m");
    c.getPrompt().setText(std::string(w.prompt_bytes, w.letter));
    auto content = std::make_shared<request::prompt_content>();
    content->words = capnp::messageToFlatArray(b);
    request::submission s;
    s.id = {77, next_id++};
    s.external_id = "ext-" + std::to_string(s.id.low);
    s.model = "m";
    s.tenant = w.tenant;
    s.max_tokens = w.max_tokens;
    s.prompts.assign(w.prompts, content);
    s.choices = w.choices;
    s.timeout = w.timeout;
    auto sink = std::make_shared<recording_sink>();
    s.client = sink;
    client result{sink, s.id, s.external_id};
    REQUIRE(hub.front->submit(std::move(s)));
    run();
    return result;
  }

  // -- the router --------------------------------------------------------------------

  std::vector<route_asked> asked() {
    std::vector<route_asked> all;
    for (auto& [from, e] : take_envelopes<msg::RouteRequest>(router)) {
      msg::view<msg::RouteRequest> in{e};
      route_asked r{msg::read(in->getKey()),
                    {},
                    in->getResumedTokens(),
                    in->getQuarantine(),
                    in->getMoveFrom().cStr()};
      for (auto name : in->getExclude()) r.exclude.emplace_back(name.cStr());
      all.push_back(r);
    }
    return all;
  }
  /// Exactly one request for a route.
  route_asked asked_once() {
    auto all = asked();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  /// The next request for a route, however long the pause before it.
  route_asked asked_in_time() {
    for (auto waited = 0ms; waited < 10s; waited += 250ms) {
      if (auto all = asked(); !all.empty()) return all.front();
      advance(250ms);
    }
    FAIL("no route was asked for");
    return {};
  }
  std::uint64_t route(const job_key& key, const played_worker& to,
                      const played_worker* from = nullptr,
                      msg::TransferPlan apart = msg::TransferPlan::FULL) {
    msg::draft<msg::Route> d;
    write(d->initKey(), key);
    d->setPlan(from ? apart : msg::TransferPlan::LOCAL);
    auto put = [](msg::WorkerRef::Builder out, const played_worker& w) {
      out.setName(w.name);
      out.setGeneration(w.generation);
    };
    if (from) put(d->initPrefill(), *from);
    put(d->initDecode(), to);
    d->setLease(next_lease);
    granted.insert(next_lease);
    to_hub("router/0", std::move(d));
    return next_lease++;
  }
  void refuse(const job_key& key, int status, const std::string& code) {
    msg::draft<msg::RouteRefused> d;
    write(d->initKey(), key);
    auto f = d->initFailure();
    f.setCode(code);
    f.setHttpStatus(static_cast<std::uint16_t>(status));
    f.setRetryAfterMs(1'000);
    to_hub("router/0", std::move(d));
  }
  std::vector<std::uint64_t> prefills_released;  ///< found by `released` on its way
  std::vector<std::uint64_t> cleared;            ///< the same
  using outcome = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t,
                             std::uint64_t>;  ///< lease, prompt, cached, bytes, on the wire
  std::vector<outcome> outcomes;              ///< the same
  std::vector<std::uint64_t> released() {
    std::vector<std::uint64_t> all;
    for (auto& [from, e] : take_envelopes<msg::RouteRelease>(router)) {
      msg::view<msg::RouteRelease> in{e};
      for (auto l : in->getLeases()) {
        all.push_back(l);
        CHECK(granted.erase(l) == 1);
      }
      for (auto l : in->getPrefills()) prefills_released.push_back(l);
      for (auto l : in->getCleared()) cleared.push_back(l);
      for (auto o : in->getOutcomes())
        outcomes.push_back({o.getLease(), o.getPromptTokens(), o.getCachedTokens(),
                            o.getTransferBytes(), o.getWireUs()});
    }
    return all;
  }

  // -- workers -----------------------------------------------------------------------

  /// What a worker was given since the last time: "decode self 2/1 resumed 3", "cancel 1/1":
  /// prompt/attempt.
  std::vector<std::string> given(const played_worker& w) {
    std::vector<std::string> all;
    auto number = [](const job_key& k) {
      return std::to_string(k.prompt) + "/" + std::to_string(k.attempt);
    };
    auto resumed = [](msg::Job::Reader j) {
      std::size_t ids = 0;
      for (auto c : j.getResume().getChoices()) ids += c.getIds().size();
      return (ids == 0 ? "" : " resumed " + std::to_string(ids)) + (j.getAlone() ? " alone" : "");
    };
    for (auto& [from, e] : take_envelopes<msg::PrefillJob>(w.actor)) {
      msg::view<msg::PrefillJob> in{e};
      tokens_of_jobs.emplace_back(in->getJob().getTransferToken().begin(),
                                  in->getJob().getTransferToken().end());
      all.push_back("prefill to " + std::string{in->getDecode().getName().cStr()} + " " +
                    number(msg::read(in->getJob().getKey())) + resumed(in->getJob()));
    }
    for (auto& [from, e] : take_envelopes<msg::DecodeJob>(w.actor)) {
      msg::view<msg::DecodeJob> in{e};
      tokens_of_jobs.emplace_back(in->getJob().getTransferToken().begin(),
                                  in->getJob().getTransferToken().end());
      const auto source = in->getSource().isSelf()
                              ? std::string{"self"}
                              : std::string{"from "} +
                                    in->getSource().getPrefill().getName().cStr();
      all.push_back("decode " + source + " " + number(msg::read(in->getJob().getKey())) +
                    resumed(in->getJob()));
    }
    for (auto& [from, e] : take_envelopes<msg::CancelJobs>(w.actor)) {
      msg::view<msg::CancelJobs> in{e};
      for (auto k : in->getKeys()) all.push_back("cancel " + number(msg::read(k)));
    }
    return all;
  }
  std::vector<std::vector<std::uint8_t>> tokens_of_jobs;

  void accept(const job_key& key, const played_worker& by, std::uint32_t tokens = 10,
              std::uint32_t cached = 0, const std::string& echo = {}) {
    msg::draft<msg::Accepted> d;
    write(d->initKey(), key);
    d->setWorker(by.name);
    d->setPromptTokens(tokens);
    d->setCachedTokens(cached);
    d->setEchoText(msg::whole(echo));
    to_hub(by.name, std::move(d));
  }
  void tokens(const job_key& key, const played_worker& by, std::uint32_t first,
              const std::vector<int>& ids, msg::FinishReason why = msg::FinishReason::NONE,
              std::uint16_t choice = 0, const engine::job_cost* cost = nullptr) {
    msg::draft<msg::TokenBatch> d;
    d->setWorker(by.name);
    d->setGeneration(by.generation);
    auto s = d->initStreams(1)[0];
    write(s.initKey(), key);
    s.setChoice(choice);
    s.setFirstIndex(first);
    auto list = s.initIds(static_cast<unsigned>(ids.size()));
    for (unsigned i = 0; i < ids.size(); ++i) list.set(i, ids[i]);
    s.setFinish(why);
    if (cost) engine::write(s.initCost(), *cost);
    to_hub(by.name, std::move(d));
  }
  /// `JobFailed` or `Rejected`.
  template <class Schema>
  void bad_end(const job_key& key, const played_worker& by, int status, const std::string& code,
               bool retryable, const std::string& parameter = {}) {
    msg::draft<Schema> d;
    write(d->initKey(), key);
    d->setWorker(by.name);
    auto f = d->initFailure();
    f.setCode(code);
    f.setHttpStatus(static_cast<std::uint16_t>(status));
    f.setRetryable(retryable);
    f.setParameter(parameter);
    to_hub(by.name, std::move(d));
  }
  /// The engine itself could not compute it, and `suspects` of the same pass.
  void fault(const job_key& key, const played_worker& by, std::uint32_t suspects = 1) {
    msg::draft<msg::JobFailed> d;
    write(d->initKey(), key);
    d->setWorker(by.name);
    auto f = d->initFailure();
    f.setCode("garbage_output");
    f.setHttpStatus(503);
    f.setRetryable(true);
    d->setSuspects(suspects);
    to_hub(by.name, std::move(d));
  }
  void job_done(const job_key& key, const played_worker& by,
                const engine::job_cost* cost = nullptr) {
    msg::draft<msg::JobDone> d;
    write(d->initKey(), key);
    d->setWorker(by.name);
    if (cost) engine::write(d->initCost(), *cost);
    to_hub(by.name, std::move(d));
  }
  void prefill_done(const job_key& key, std::uint32_t cached = 0, const played_worker* by = nullptr,
                    const engine::job_cost* cost = nullptr) {
    const auto& name = by ? by->name : prefill.name;
    msg::draft<msg::PrefillDone> d;
    write(d->initKey(), key);
    d->setWorker(name);
    d->setComputeUs(2'500);
    d->setTransferBytes(4'096);
    d->setWireUs(700);
    d->setPieces(3);
    d->setCachedTokens(cached);
    d->setToToken(9);
    d->setTransport("ucx");
    if (cost) engine::write(d->initCost(), *cost);
    to_hub(name, std::move(d));
  }
  /// `w`'s engine has crashed with these at hand; its node says so, and then that it is gone.
  void crash(const played_worker& w, const std::vector<job_key>& at_hand,
             std::uint32_t suspects = 0) {
    name_suspects(w, at_hand, suspects);
    now_is(w, msg::EntryState::STARTING, w.generation);
  }
  void name_suspects(const played_worker& w, const std::vector<job_key>& at_hand,
                     std::uint32_t suspects = 0) {
    msg::draft<msg::CrashSuspects> d;
    d->setEngine(w.name);
    d->setGeneration(w.generation);
    d->setSuspects(suspects == 0 ? static_cast<std::uint32_t>(at_hand.size()) : suspects);
    d->setReason("killed by signal 11");
    auto keys = d->initKeys(static_cast<unsigned>(at_hand.size()));
    for (unsigned i = 0; i < keys.size(); ++i) write(keys[i], at_hand[i]);
    to_hub("launcher/p/b.0", std::move(d));
  }
  template <class Schema>
  void to_hub(const std::string& from, msg::draft<Schema>&& d) {
    auto e = std::move(d).freeze();
    REQUIRE(e);
    office->send({"requests/h", 0}, {from, 0}, *std::move(e));
    run();
  }

  // -- the directory -----------------------------------------------------------------

  /// The entry of a worker is now like this; both the view and the hub learn of it.
  void now_is(const played_worker& w, msg::EntryState state, std::uint64_t generation) {
    auto& e = entries[w.name];
    e.state = state;
    e.generation = generation;
    view->set(std::make_shared<directory::snapshot>(entries));
    caf::anon_send(hub.actor, directory::directory_changed{{{e}, {}}, view->get(), ""});
    run();
  }
  void leaves(const played_worker& w, const std::string& lost_host = {}) {
    auto e = entries.at(w.name);
    entries.erase(w.name);
    view->set(std::make_shared<directory::snapshot>(entries));
    caf::anon_send(hub.actor, directory::directory_changed{{{}, {e}}, view->get(), lost_host});
    run();
  }

  // -- after all -----------------------------------------------------------------------

  /// Nothing is held any more: no job, no place at the gate, no lease.
  void check_all_released() {
    advance(1s);
    released();
    CHECK(granted.empty());
    CHECK(hub.jobs->size() == 0);
    CHECK(hub.gate->open() == 0);
    CHECK(hub.gate->held_bytes() == 0);
  }
};

using lines = std::vector<std::string>;
inline const auto stop = msg::FinishReason::STOP;

}  // namespace troupe::test
