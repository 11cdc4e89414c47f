// A node's hub with tenants: who begins, who waits, who is refused and told what, and that nothing
// of a request is left, whatever ends it.

#include "tests/actor/request/stage.hpp"

#include "actors/admission/budgets_actor.hpp"

#include <prometheus/text_serializer.h>

using namespace troupe;
using namespace troupe::test;

namespace {

// How it can fail: a request that goes to the router past its tenant's limits; one that waits for
// ever, or whose place, bytes or model units stay taken; a refusal that names the wrong reason, or
// no time; a prompt that shuts admission for all who come after it.

using troupe::admission::tenant_limits;

tenant_limits best_effort(const std::string& tenant, double weight = 1) {
  tenant_limits l;
  l.tenant = tenant;
  l.model = "m";
  l.best_effort_weight = weight;
  l.wait_max = 10s;
  return l;
}

tenant_limits guaranteed(const std::string& tenant, double per_minute, double burst) {
  tenant_limits l;
  l.tenant = tenant;
  l.model = "m";
  l.guaranteed_per_minute = per_minute;
  l.burst = burst;
  l.wait_max = 0ms;
  return l;
}

/// One engine of role `both`, and the owner of the budgets.
struct entrance : stage {
  caf::actor budgets;

  explicit entrance(std::vector<tenant_limits> limits, std::uint32_t slots = 1)
      : stage(100, [&](request::hub_options& o, stage& s) {
          o.tenants = limits;
          o.gateways = {"h"};
          o.step_tokens = {{"p", 512}};
          for (const auto* w : {&s.prefill, &s.decode, &s.second}) s.entries.erase(w->name);
          auto& e = s.entries.at(s.both.name);
          e.slots = slots;
          e.pool = "p";
          s.view->set(std::make_shared<directory::snapshot>(s.entries));
        }) {
    budgets = own(troupe::admission::spawn_budgets(system, {"h", 5, {"h"}, limits, office}));
    advance(1s);
  }
  client ask(const std::string& tenant, std::size_t prompt_bytes = 400,
             std::chrono::milliseconds timeout = 60s) {
    wish w;
    w.tenant = tenant;
    w.prompt_bytes = prompt_bytes;
    w.timeout = timeout;
    w.max_tokens = 100;
    return submit(w);
  }
  /// Routed, accepted, and one token on its way.
  job_key begun() {
    const auto key = asked_once().key;
    route(key, both);
    accept(key, both, 100);
    tokens(key, both, 0, {1});
    return key;
  }
  void ends(const job_key& key) {
    tokens(key, both, 1, {2}, stop);
    job_done(key, both);
    advance(100ms);
  }
  /// Another engine like the first one, of so many slots, is ready.
  void second_begins(std::uint32_t slots) {
    auto& other = entries[second.name];
    other.name = second.name;
    other.role = msg::Role::BOTH;
    other.model = "m";
    other.host = "a";
    other.pool = "p";
    other.slots = slots;
    now_is(second, msg::EntryState::READY, second.generation);
  }
  /// A worker's word on what it has.
  void reports(const played_worker& w, std::uint32_t running, std::uint32_t further = 0) {
    msg::draft<msg::WorkerReport> d;
    d->setWorker(w.name);
    d->setGeneration(w.generation);
    d->setRunning(running);
    d->setFurtherAnswers(further);
    to_hub(w.name, std::move(d));
    advance(100ms);
  }
  troupe::admission::tenant_account account(const std::string& tenant) {
    caf::scoped_actor me{system};
    auto asked = me->request(hub.actor, caf::infinite, request::describe_requests{});
    run();
    troupe::admission::tenant_account found;
    asked.receive(
        [&](const request::requests_report& r) {
          for (const auto& t : r.tenants)
            if (t.tenant == tenant) found = t;
        },
        [](const caf::error&) {});
    return found;
  }
  void check_nothing_left(const std::string& tenant) {
    check_all_released();
    advance(5s);  // also for who never tells what it has cost
    const auto a = account(tenant);
    CHECK(a.open == 0);
    CHECK(a.waiting == 0);
    CHECK(a.waiting_mu == 0);
    CHECK(a.reserved_mu == Approx(0).margin(1e-9));
  }
};

}  // namespace

TEST_CASE("those beyond capacity wait, and begin one by one as places come free") {
  entrance e{{best_effort("a")}};
  const auto first = e.ask("a"), second = e.ask("a"), third = e.ask("a");
  auto key = e.begun();
  CHECK(key.id == first.id);
  CHECK(e.account("a").waiting == 2);
  CHECK(e.hub.gate->open() == 3);  // those that wait hold their places and bytes
  e.ends(key);
  CHECK(first.sink->said.back() == "finished");
  key = e.begun();
  CHECK(key.id == second.id);
  e.ends(key);
  key = e.begun();
  CHECK(key.id == third.id);
  e.ends(key);
  e.advance(4s);  // their worker tells no costs
  CHECK(e.account("a").charged_mu > 0);
  CHECK(e.account("a").admitted == 3);
  e.check_nothing_left("a");
}

TEST_CASE("a place comes free with the answer, not with what it has cost") {
  entrance e{{best_effort("a")}};
  e.ask("a");
  const auto second = e.ask("a");
  const auto key = e.begun();
  e.tokens(key, e.both, 1, {2}, stop);  // `JobDone` is still to come
  CHECK(e.asked_once().key.id == second.id);
}

TEST_CASE("prompts wait until the one before has its first token, and none shuts the door") {
  entrance e{{best_effort("a")}, 8};
  for (int round = 0; round < 3; ++round) {
    e.ask("a", 400'000);  // more than the engine takes up at once
    const auto key = e.asked_once().key;
    const auto next = e.ask("a", 400'000);
    CHECK(e.asked().empty());
    if (round == 2) {
      e.hub.front->cancel(key.id, "client_gone");
      e.run();
    } else {
      e.route(key, e.both);
      if (round == 1) {
        e.bad_end<msg::Rejected>(key, e.both, 400, "prompt_too_long", false);
      } else {
        e.accept(key, e.both, 100'000);
        e.tokens(key, e.both, 0, {1});
      }
    }
    CHECK(e.asked_once().key.id == next.id);
    e.hub.front->cancel(key.id, "client_gone");
    e.hub.front->cancel(next.id, "client_gone");
    e.run();
  }
  e.check_nothing_left("a");
}

TEST_CASE("a client that goes while it waits leaves nothing") {
  entrance e{{best_effort("a")}};
  e.ask("a");
  const auto key = e.begun();
  const auto waits = e.ask("a");
  CHECK(e.account("a").waiting_mu > 0);
  e.hub.front->cancel(waits.id, "client_gone");
  e.run();
  CHECK(e.account("a").waiting == 0);
  CHECK(e.hub.gate->open() == 1);
  CHECK(waits.sink->said.empty());
  CHECK(waits.sink.use_count() == 1);
  const auto story = e.hub.front->timeline_json(waits.external_id, "a");
  CHECK(story.find("cancelled") != std::string::npos);
  CHECK(prometheus::TextSerializer{}
            .Serialize(e.metrics->Collect())
            .find("troupe_tenant_left_total{model=\"m\",tenant=\"a\"} 1") != std::string::npos);
  e.ends(key);
  CHECK(e.asked().empty());
  e.check_nothing_left("a");
}

TEST_CASE("more than a tenant's own limit reads as that, with the time, and others go on") {
  entrance e{{guaranteed("a", 0.6, 0.05), best_effort("b")}, 8};
  const auto first = e.ask("a");
  REQUIRE(first.sink->standings.size() == 1);
  CHECK(first.sink->standings[0].limit_per_minute == 0.6);
  e.ends(e.begun());
  e.advance(4s);  // its worker tells no costs
  CHECK(e.account("a").charged_mu > 0);
  std::vector<stage::client> all;
  while (all.empty() || all.back().sink->failures.empty()) {
    REQUIRE(all.size() < 10);
    all.push_back(e.ask("a"));
    const auto routed = e.asked();
    if (!routed.empty()) {
      e.route(routed[0].key, e.both);
      e.accept(routed[0].key, e.both, 100);
      e.tokens(routed[0].key, e.both, 0, {1});
    }
  }
  const auto& why = all.back().sink->failures[0];
  CHECK(why.http_status == 429);
  CHECK(why.code == "tenant_limit");
  CHECK(why.retry_after > 0ms);
  CHECK(why.retry_after < 60s);
  REQUIRE(all.back().sink->standings.size() == 1);
  CHECK(all.back().sink->standings[0].reset > 0ms);
  CHECK(all.back().sink.use_count() == 1);
  // That is nobody else's.
  e.ask("b");
  CHECK(e.asked().size() == 1);
  // When it says, it is let in.
  e.advance(why.retry_after + 100ms);
  CHECK(e.ask("a").sink->failures.empty());
}

TEST_CASE("a request that is ended before it computes anything is paid back") {
  entrance e{{guaranteed("a", 60, 6)}, 8};
  const auto c = e.ask("a");
  const auto before = c.sink->standings.at(0).remaining;
  CHECK(before < 6);
  REQUIRE(e.asked().size() == 1);
  CHECK(e.account("a").reserved_mu > 0);
  e.hub.front->cancel(c.id, "client_gone");
  e.run();
  CHECK(e.account("a").reserved_mu == 0);
  CHECK(e.account("a").charged_mu == 0);
  const auto again = e.ask("a");
  CHECK(again.sink->standings.at(0).remaining == Approx(before).margin(1e-6));
  e.hub.front->cancel(again.id, "client_gone");
  e.check_nothing_left("a");
}

TEST_CASE("a cap of requests at a time reads as that") {
  auto l = best_effort("a");
  l.open_max = 1;
  l.wait_max = 300ms;
  entrance e{{l}, 8};
  e.ask("a");
  const auto key = e.begun();
  const auto late = e.ask("a");
  CHECK(late.sink->failures.empty());
  e.advance(1s);
  REQUIRE(late.sink->failures.size() == 1);
  CHECK(late.sink->failures[0].code == "tenant_concurrency");
  CHECK(late.sink->failures[0].http_status == 429);
  CHECK(late.sink->failures[0].retry_after > 0ms);
  e.ends(key);
  e.ask("a");
  CHECK(e.asked().size() == 1);
}

TEST_CASE("no engine: 503, and not the tenant's limit") {
  entrance e{{best_effort("a"), guaranteed("g", 100, 10)}};
  e.leaves(e.both);
  for (const auto* who : {"a", "g"}) {
    const auto c = e.ask(who);
    REQUIRE(c.sink->failures.size() == 1);
    CHECK(c.sink->failures[0].http_status == 503);
    CHECK(c.sink->failures[0].code == "model_not_ready");
  }
}

TEST_CASE("what runs at an engine that drains takes no place at the others") {
  // How it can fail: a pool is restarted engine by engine, and nothing begins at those that are
  // ready; or more begins than they have places for.
  entrance e{{best_effort("a")}, 2};
  e.ask("a");
  e.begun();
  e.ask("a");
  e.begun();
  e.reports(e.both, 2);
  e.now_is(e.both, msg::EntryState::DRAINING, e.both.generation);
  const auto refused = e.ask("a");  // there is no other
  REQUIRE(refused.sink->failures.size() == 1);
  CHECK(refused.sink->failures[0].code == "model_not_ready");
  e.second_begins(2);
  for (int i = 0; i < 2; ++i) {
    e.ask("a");
    const auto key = e.asked_once().key;
    e.route(key, e.second);
    e.accept(key, e.second, 100);
    e.tokens(key, e.second, 0, {1});
  }
  e.ask("a");
  CHECK(e.asked().empty());
}

TEST_CASE("each answer of a job that has several takes a place, here and in its engine's word") {
  // How it can fail: an engine's one job of four answers is one place in use there, and four here.
  entrance e{{best_effort("a")}, 4};
  stage::wish w;
  w.tenant = "a";
  w.choices = 4;
  w.max_tokens = 100;
  e.submit(w);
  e.begun();
  e.reports(e.both, 1, 3);
  e.now_is(e.both, msg::EntryState::DRAINING, e.both.generation);
  e.second_begins(1);
  e.ask("a");
  CHECK(e.asked().size() == 1);
}

TEST_CASE("a tenant's flood leaves places at the node for others") {
  // How it can fail: one tenant's waiting requests are all that the node takes, and a guaranteed
  // tenant is told `too_many_requests`.
  auto flood = best_effort("a");
  flood.wait_max = 1h;
  entrance e{{flood, guaranteed("g", 100, 10)}};
  std::vector<stage::client> all{e.ask("a", 400, 1h)};
  e.begun();
  while (all.back().sink->failures.empty()) {
    REQUIRE(all.size() < 90);
    all.push_back(e.ask("a", 400, 1h));
  }
  CHECK(all.size() > 40);
  CHECK(all.back().sink->failures[0].code == "queue_full");
  CHECK(all.back().sink->failures[0].http_status == 429);
  CHECK(all.back().sink->failures[0].retry_after > 0ms);
  CHECK(e.account("a").refused.at("queue_full") == 1);
  CHECK(e.ask("g").sink->failures.empty());
}

TEST_CASE("a request whose own time is over while it waits is told that") {
  entrance e{{best_effort("a")}};
  e.ask("a");
  e.begun();
  const auto late = e.ask("a", 400, 2s);
  CHECK(late.sink->failures.empty());
  e.advance(3s);
  REQUIRE(late.sink->failures.size() == 1);
  CHECK(late.sink->failures[0].code == "deadline_exceeded");
  CHECK(late.sink->failures[0].http_status == 504);
  CHECK(late.sink->failures[0].retry_after == 0ms);
}

TEST_CASE("a model that nobody had limits for is served from the reload on") {
  auto other = best_effort("a");
  other.model = "another";
  entrance e{{other}};
  CHECK(e.ask("a").sink->failures.at(0).http_status == 403);
  caf::anon_send(e.hub.actor, request::set_tenants{{other, best_effort("a")}});
  e.run();
  CHECK(e.ask("a").sink->failures.empty());
  CHECK(e.asked().size() == 1);
}

TEST_CASE("limits change while requests run and wait") {
  entrance e{{best_effort("a"), best_effort("b")}};
  e.ask("a");
  const auto key = e.begun();
  const auto waits = e.ask("b");
  caf::anon_send(e.hub.actor, request::set_tenants{{best_effort("a"), best_effort("c")}});
  e.run();
  const auto gone = e.ask("b");
  REQUIRE(gone.sink->failures.size() == 1);
  CHECK(gone.sink->failures[0].http_status == 403);
  e.ask("c");
  CHECK(e.asked().empty());
  e.ends(key);
  const auto next = e.begun();
  CHECK(next.id == waits.id);  // it was let in before
  e.ends(next);
  e.ends(e.begun());
  CHECK(e.account("c").admitted == 1);
  e.check_nothing_left("c");
}
