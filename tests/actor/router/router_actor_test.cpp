#include "actors/router/router_actor.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct fixture : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  caf::actor directory = capture();
  caf::actor requests = capture();
  caf::actor worker = capture();
  caf::actor router;
  std::map<std::string, capacity::cost_model> costs;
  std::shared_ptr<const control::assignment> assigned;
  std::shared_ptr<control::shard_map> node;

  fixture() {
    office->bind("requests/h", 0, requests);
    office->bind("both/p/a.0", 7, worker);
    start(1'000);
  }
  void start(std::uint64_t first_lease, std::uint64_t generation = 0) {
    router::router_options o;
    o.host = "r";
    o.generation = generation;
    o.assigned = assigned;
    o.node = node;
    o.models = {"m"};
    o.places["h"] = {"r", "z", "a", "h"};
    o.office = office;
    o.directory = directory;
    o.first_lease = first_lease;
    o.costs = costs;
    router = own(router::spawn_router(system, std::move(o)));
    run();
  }
  void tell(msg::EntryState state, const std::string& lost_host = {}) {
    directory::entry e;
    e.name = "both/p/a.0";
    e.generation = 7;
    e.role = msg::Role::BOTH;
    e.state = state;
    e.model = "m";
    e.pool = "p";
    e.host = "a";
    e.transfer_kind = "ucx";
    e.transfer_address = {1, 2, 3};
    caf::anon_send(router, directory::directory_changed{
                               {{e}, {}}, std::make_shared<directory::snapshot>(), lost_host});
    run();
  }
  void ask(std::uint32_t attempt = 1, const std::string& model = "m",
           const std::vector<std::uint64_t>& chain = {}) {
    msg::draft<msg::RouteRequest> d;
    d->initKey().setAttempt(attempt);
    d->setReplyTo("requests/h");
    d->setModel(model);
    d->setPromptBytes(4'000);
    auto list = d->initChain(static_cast<unsigned>(chain.size()));
    for (unsigned i = 0; i < chain.size(); ++i) list.set(i, chain[i]);
    send("requests/h", std::move(d));
  }
  template <class Schema>
  void send(const std::string& from, msg::draft<Schema>&& d, std::uint64_t generation = 7) {
    auto e = std::move(d).freeze();
    REQUIRE(e);
    office->send({std::string{"router/0"}, 0}, {from, generation}, *std::move(e));
    run();
  }
  /// States that the shard has announced since the last time.
  std::vector<msg::EntryState> announced() {
    std::vector<msg::EntryState> all;
    for (const auto& x : take<directory::set_entry>(directory)) {
      CHECK(x.value.name == "router/0");
      CHECK(x.value.role == msg::Role::ROUTER);
      all.push_back(x.value.state);
    }
    return all;
  }
  /// Workers that were asked for everything since the last time.
  std::size_t asked() { return take_envelopes<msg::PrefixResync>(worker).size(); }
  /// Entries of these names on their hosts, and of nobody else.
  struct seat {
    std::string name;
    msg::Role role;
    std::string host;
    msg::EntryState state = msg::EntryState::READY;
  };
  void sees(const std::vector<seat>& all) {
    directory::snapshot now;
    directory::change c;
    for (const auto& s : all) {
      auto& e = now[s.name];
      e.name = s.name;
      e.role = s.role;
      e.host = s.host;
      e.state = s.state;
      e.generation = 7;
      e.model = s.role == msg::Role::BOTH ? "m" : "";
      c.added_or_changed.push_back(e);
    }
    caf::anon_send(router,
                   directory::directory_changed{c, std::make_shared<directory::snapshot>(now), ""});
    run();
  }
  void events(std::uint64_t sequence, bool reset = false, bool more = false) {
    msg::draft<msg::PrefixEvents> d;
    d->setWorker("both/p/a.0");
    d->setGeneration(7);
    d->setSequence(sequence);
    d->setReset(reset);
    d->setMore(more);
    d->initAdded(1).set(0, 42 + sequence);
    send("both/p/a.0", std::move(d));
  }
};

}  // namespace

TEST_CASE_METHOD(fixture, "the router follows the directory from its start") {
  auto subscribed = take<directory::subscribe>(directory);
  REQUIRE(subscribed.size() == 1);
  CHECK(subscribed[0].who == router);
}

TEST_CASE_METHOD(fixture, "it answers with a whole address of the worker, to who asked, and with "
                          "the key of the question") {
  tell(msg::EntryState::READY);
  ask(3);
  auto routes = take_envelopes<msg::Route>(requests);
  REQUIRE(routes.size() == 1);
  msg::view<msg::Route> r{routes[0].second};
  CHECK(r->getKey().getAttempt() == 3);
  CHECK(r->getPlan() == msg::TransferPlan::LOCAL);
  CHECK(r->getPrefill().getName().size() == 0);
  CHECK(std::string{r->getDecode().getName().cStr()} == "both/p/a.0");
  CHECK(r->getDecode().getGeneration() == 7);
  CHECK(r->getDecode().getTransferAddress().size() == 3);
  CHECK(r->getLease() == 1'000);
  CHECK(r->getReason().size() > 0);
}

TEST_CASE_METHOD(fixture, "a pool's calibrated costs are those of its workers, from the start") {
  capacity::coefficients c;
  c.alpha = 0.25;
  c.beta = 1;
  costs.emplace("p", capacity::cost_model::make(c, {}).value());
  start(2'000);
  tell(msg::EntryState::READY);
  ask();
  auto routes = take_envelopes<msg::Route>(requests);
  REQUIRE(routes.size() == 1);
  msg::view<msg::Route> r{routes[0].second};
  // A thousand tokens of 4 bytes, a quarter of a second each.
  CHECK_THAT(std::string{r->getReason().cStr()}, Catch::Contains("prefill 250000"));
}

TEST_CASE_METHOD(fixture, "it refuses with the reason while nothing is ready") {
  ask();
  tell(msg::EntryState::LOADING);
  ask();
  ask(1, "nobody");
  auto refusals = take_envelopes<msg::RouteRefused>(requests);
  REQUIRE(refusals.size() == 3);
  auto status = [&](std::size_t i) {
    return msg::view<msg::RouteRefused> { refusals[i].second } -> getFailure().getHttpStatus();
  };
  CHECK(status(0) == 503);
  CHECK(status(1) == 503);
  CHECK(status(2) == 404);
  msg::view<msg::RouteRefused> r{refusals[1].second};
  CHECK_THAT(r->getFailure().getMessage().cStr(), Catch::Contains("loading"));
  CHECK(r->getFailure().getRetryAfterMs() > 0);
}

TEST_CASE_METHOD(
    fixture,
    "a gap in prefix events asks that worker for everything, once; then its prefixes count") {
  tell(msg::EntryState::READY);
  CHECK(asked() == 1);  // it may have held something before this shard began
  events(0, true);
  events(1);
  CHECK(pending(worker) == 0);
  events(5);
  events(6);
  auto asked = take_envelopes<msg::PrefixResync>(worker);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].first.to.generation == 7);
  events(7, true);
  CHECK(pending(worker) == 0);
}

TEST_CASE_METHOD(
    fixture, "a message that cannot be read does not end the router, and is passed on to nobody") {
  tell(msg::EntryState::READY);
  directory::entry hub;
  hub.name = "requests/h";
  hub.role = msg::Role::REQUESTS;
  caf::anon_send(router, directory::directory_changed{{{hub}, {}},
                                                      std::make_shared<directory::snapshot>(
                                                          directory::snapshot{{hub.name, hub}}),
                                                      ""});
  run();
  auto garble = [&]<class Schema>(Schema*) {
    office->send({std::string{"router/0"}, 0}, {"requests/h", 0}, test::unreadable<Schema>());
  };
#define GARBLE(Schema) garble(static_cast<msg::Schema*>(nullptr));
  TROUPE_ENVELOPE_SCHEMAS(GARBLE)
#undef GARBLE
  run();
  CHECK(pending(requests) == 0);
  ask();
  CHECK(take_envelopes<msg::Route>(requests).size() == 1);
}

TEST_CASE_METHOD(fixture,
                 "routes that a dead hub had been given are free when its successor speaks") {
  tell(msg::EntryState::READY);
  auto reason = [&] {
    ask();
    auto routes = take_envelopes<msg::Route>(requests);
    REQUIRE(routes.size() == 1);
    return std::string{msg::view<msg::Route>{routes[0].second} -> getReason().cStr()};
  };
  const auto unburdened = reason();
  CHECK(reason() != unburdened);
  msg::draft<msg::RouteRelease> d;
  send("requests/h", std::move(d), 8);
  msg::draft<msg::RouteRequest> again;
  again->initKey();
  again->setReplyTo("requests/h");
  again->setModel("m");
  again->setPromptBytes(4'000);
  send("requests/h", std::move(again), 8);
  auto routes = take_envelopes<msg::Route>(requests);
  REQUIRE(routes.size() == 1);
  CHECK(std::string{msg::view<msg::Route>{routes[0].second} -> getReason().cStr()} == unburdened);
}

TEST_CASE_METHOD(fixture, "what came of a route moves the next choices, once for each lease") {
  // How it can fail: outcomes are told and nobody learns from them, or after the lease is gone.
  tell(msg::EntryState::READY);
  std::vector<std::uint64_t> chain;
  for (std::uint64_t n = 1; n <= 8; ++n) {
    events(n, n == 1);
    chain.push_back(42 + n);
  }
  std::uint64_t lease = 0;
  const auto cached = [&] {
    ask(1, "m", chain);
    const auto routes = take_envelopes<msg::Route>(requests);
    REQUIRE(routes.size() == 1);
    msg::view<msg::Route> in{routes[0].second};
    lease = in->getLease();
    const std::string reason = in->getReason().cStr();
    const auto at = reason.find(" with ");
    REQUIRE(at != std::string::npos);
    return std::stoi(reason.substr(at + 6));
  };
  const auto promised = cached();
  REQUIRE(promised >= 256);
  for (int i = 0; i < 30; ++i) {
    msg::draft<msg::RouteRelease> d;
    d->setHost("h");
    d->initLeases(1).set(0, lease);
    auto o = d->initOutcomes(1)[0];
    o.setLease(lease);
    o.setPromptTokens(1'000);
    o.setCachedTokens(static_cast<std::uint32_t>(promised / 2));
    o.setTransferBytes(~std::uint64_t{0});  // whatever a peer says
    o.setWireUs(1);
    send("requests/h", std::move(d));
    cached();
  }
  CHECK(cached() < promised * 0.6);
  CHECK(cached() > promised * 0.4);
}

TEST_CASE_METHOD(fixture, "a question's session is heard") {
  tell(msg::EntryState::READY);
  auto reason = [&] {
    msg::draft<msg::RouteRequest> d;
    d->initKey();
    d->setReplyTo("requests/h");
    d->setModel("m");
    d->setSession("me");
    send("requests/h", std::move(d));
    auto routes = take_envelopes<msg::Route>(requests);
    REQUIRE(routes.size() == 1);
    return std::string{msg::view<msg::Route>{routes[0].second} -> getReason().cStr()};
  };
  CHECK_THAT(reason(), !Catch::Contains("session"));
  CHECK_THAT(reason(), Catch::Contains("session"));
}

TEST_CASE_METHOD(fixture, "two incarnations of the router give different leases") {
  tell(msg::EntryState::READY);
  std::set<std::uint64_t> leases;
  for (int i = 0; i < 3; ++i) {
    caf::anon_send_exit(router, caf::exit_reason::kill);
    run();
    CHECK_FALSE(office->knows(std::string{"router/0"}));
    start(0);
    tell(msg::EntryState::READY);
    ask();
    for (auto& [from, e] : take_envelopes<msg::Route>(requests))
      leases.insert(msg::view<msg::Route> { e } -> getLease());
  }
  CHECK(leases.size() == 3);
}

TEST_CASE_METHOD(fixture, "a shard is ready when it sees every host and knows what all ready "
                          "workers hold") {
  CHECK(announced() == std::vector{msg::EntryState::STARTING});
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}});
  CHECK(asked() == 1);
  events(0, true);
  CHECK(announced().empty());  // nothing of host h is there
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}, {"requests/h", msg::Role::REQUESTS, "h"}});
  CHECK(announced() == std::vector{msg::EntryState::READY});
  CHECK(asked() == 0);
  // Once ready, it stays so.
  events(9);
  CHECK(announced().empty());
}

TEST_CASE_METHOD(fixture,
                 "everything may come in several messages: ready is who has the last one") {
  announced();
  sees({{"both/p/a.0", msg::Role::BOTH, "a"},
        {"both/p/b.0", msg::Role::BOTH, "b", msg::EntryState::LOADING},
        {"requests/h", msg::Role::REQUESTS, "h"}});
  // What it says before it has heard the question is in the answer, too.
  events(3);
  events(4, true, true);
  events(5, false, true);
  CHECK(announced().empty());
  events(6);
  CHECK(announced() == std::vector{msg::EntryState::READY});
  CHECK(asked() == 1);
}

TEST_CASE_METHOD(fixture, "a part of everything that is lost is noticed, and asked for again") {
  announced();
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}, {"requests/h", msg::Role::REQUESTS, "h"}});
  CHECK(asked() == 1);
  events(4, true, true);
  events(6);
  CHECK(announced().empty());
  CHECK(asked() == 1);
  events(7, true);
  CHECK(announced() == std::vector{msg::EntryState::READY});
}

TEST_CASE_METHOD(fixture, "a worker that does not answer is asked again, and not waited for long") {
  announced();
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}, {"requests/h", msg::Role::REQUESTS, "h"}});
  CHECK(asked() == 1);
  advance(router::ask_again_after + 50ms);
  CHECK(asked() == 1);
  advance(router::complete_within - router::ask_again_after - 150ms);
  CHECK(announced().empty());
  advance(150ms);
  CHECK(announced() == std::vector{msg::EntryState::READY});
  // After 2 s, 6 s, 14 s, 30 s, 62 s; then each minute.
  advance(10s);
  CHECK(asked() == 2);
  advance(110s);
  CHECK(asked() == 3);
  advance(10 * router::ask_again_at_most);
  CHECK(asked() == 10);
  events(8, true);
  advance(3 * router::ask_again_at_most);
  CHECK(asked() == 0);
}

TEST_CASE_METHOD(fixture,
                 "a worker whose answer is under way is not asked again, unless it stops") {
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}, {"requests/h", msg::Role::REQUESTS, "h"}});
  CHECK(asked() == 1);
  events(3, true, true);
  advance(router::ask_again_after + 50ms);
  CHECK(asked() == 0);
  events(4, false, true);
  advance(2 * router::ask_again_after);
  CHECK(asked() == 0);
  advance(4 * router::ask_again_after);
  CHECK(asked() == 1);
}

TEST_CASE_METHOD(fixture, "a shard that knows no worker leaves it to others that are ready") {
  announced();
  const seat other{"router/1", msg::Role::ROUTER, "h"};
  sees({other});
  advance(3 * router::complete_within);
  CHECK(announced().empty());
  SECTION("until it knows one") {
    sees({other, {"both/p/a.0", msg::Role::BOTH, "a"}});
    CHECK(announced().empty());
    events(0, true);
  }
  SECTION("until that one is no longer ready") {
    sees({{"router/1", msg::Role::ROUTER, "h", msg::EntryState::DRAINING}});
    advance(router::complete_within);
  }
  CHECK(announced() == std::vector{msg::EntryState::READY});
}

TEST_CASE_METHOD(fixture, "a worker that was out of sight is asked again: what it said meanwhile "
                          "is lost") {
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}});
  events(0, true);
  CHECK(asked() == 1);
  directory::entry e;
  e.name = "both/p/a.0";
  e.generation = 7;
  caf::anon_send(router, directory::directory_changed{
                             {{}, {e}}, std::make_shared<directory::snapshot>(), "a"});
  run();
  sees({{"both/p/a.0", msg::Role::BOTH, "a"}});
  CHECK(asked() == 1);
  // A younger one, too.
  tell(msg::EntryState::READY);
  CHECK(asked() == 0);
}

TEST_CASE_METHOD(fixture, "a shard leaves the directory with its end, and a late word of an "
                          "earlier incarnation doesn't unbind the next") {
  caf::anon_send_exit(router, caf::exit_reason::kill);
  run();
  CHECK(take<directory::remove_entry>(directory).size() == 1);
  start(1'000, 5);
  const auto first = router;
  start(2'000, 6);
  caf::anon_send_exit(first, caf::exit_reason::kill);
  run();
  const auto gone = take<directory::remove_entry>(directory);
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].name == "router/0");
  CHECK(gone[0].generation == 5);
  tell(msg::EntryState::READY);
  ask();
  const auto routes = take_envelopes<msg::Route>(requests);
  REQUIRE(routes.size() == 1);
  CHECK(routes[0].first.from.generation == 6);
}

TEST_CASE_METHOD(fixture, "a question about a key of another shard's is answered, and counted") {
  assigned = std::make_shared<const control::assignment>(
      control::assignment::make({3, 1}, {"router/0", "router/1"}, {{0, {0}}, {100, {1}}}).value());
  start(5'000);
  tell(msg::EntryState::READY);
  auto ask_with = [&](std::uint64_t key) {
    msg::draft<msg::RouteRequest> d;
    d->initKey();
    d->setReplyTo("requests/h");
    d->setModel("m");
    d->setShardKey(key);
    send("requests/h", std::move(d));
    CHECK(take_envelopes<msg::Route>(requests).size() == 1);
  };
  auto account = [&] {
    caf::scoped_actor me{system};
    me->send(router, control::describe_load{});
    run();
    control::shard_load l;
    me->receive([&](const control::shard_load& x) { l = x; });
    return l;
  };
  ask_with(99);
  CHECK(account().misrouted == 0);
  ask_with(100);
  CHECK(account().requests == 2);
  CHECK(account().misrouted == 1);
  CHECK(account().goes_by == control::assignment_number{3, 1});
  const auto assign = [&](control::assignment_number number, std::uint16_t all_to) {
    msg::draft<msg::Assignment> d;
    control::write(
        *d, control::assignment::make(number, {"router/0", "router/1"}, {{0, {all_to}}}).value());
    send("control", std::move(d));
  };
  assign({3, 2}, 0);
  ask_with(100);
  CHECK(account().misrouted == 1);
  assign({2, 9}, 1);  // of a control host that has been replaced
  ask_with(100);
  CHECK(account().misrouted == 1);
  CHECK(account().goes_by == control::assignment_number{3, 2});
}

TEST_CASE_METHOD(fixture, "a node that began without a control host learns from shards' answers") {
  const std::vector<std::string> names{"router/0", "router/1"};
  node = std::make_shared<control::shard_map>(names);
  assigned = node->get();
  start(5'000);
  tell(msg::EntryState::READY);
  const auto ask_by = [&](control::assignment_number number, std::uint64_t incarnation) {
    msg::draft<msg::RouteRequest> d;
    d->initKey();
    d->setReplyTo("requests/h");
    d->setModel("m");
    d->setTerm(number.term);
    d->setAssignmentGeneration(number.generation);
    send("requests/h", std::move(d), incarnation);
    std::vector<control::assignment_number> told;
    for (auto& [from, e] : take_envelopes<msg::Assignment>(requests))
      told.push_back(control::read(*msg::view<msg::Assignment>{e}).value().number());
    return told;
  };
  using numbers = std::vector<control::assignment_number>;
  CHECK(ask_by({0, 0}, 7).empty());
  // The hub of its node has heard; the shard goes by that, too, and tells others.
  const auto learnt = [&](control::assignment_number number) {
    return node->offer(control::assignment::make(number, names, {{0, {1}}}).value());
  };
  REQUIRE(learnt({3, 1}));
  CHECK(ask_by({3, 1}, 7).empty());
  CHECK(ask_by({4, 1}, 7).empty());
  CHECK(ask_by({0, 0}, 7) == numbers{{3, 1}});
  CHECK(ask_by({0, 0}, 7).empty());  // it is on its way
  CHECK(ask_by({0, 0}, 8) == numbers{{3, 1}});
  REQUIRE(learnt({3, 2}));
  CHECK(ask_by({3, 1}, 8) == numbers{{3, 2}});
  // It was lost on its way.
  advance(router::tell_again_after);
  CHECK(ask_by({3, 1}, 8) == numbers{{3, 2}});
}

TEST_CASE_METHOD(fixture,
                 "a hub that knows of no keys is served, by a key that nobody is told of") {
  // How it can fail: all of them are taken for key 0, misrouted or a hot key; a session that is
  // kept under key 0 goes to whoever has that.
  assigned = std::make_shared<const control::assignment>(
      control::assignment::make({3, 1}, {"router/0", "router/1"}, {{0, {1}}, {100, {0}}}).value());
  start(5'000);
  tell(msg::EntryState::READY);
  for (const auto* session : {"me", ""}) {
    msg::draft<msg::RouteRequest> d;
    d->initKey();
    d->setReplyTo("requests/h");
    d->setModel("m");
    d->setSession(session);
    send("requests/h", std::move(d));
    CHECK(take_envelopes<msg::Route>(requests).size() == 1);
  }
  caf::scoped_actor me{system};
  me->send(router, control::describe_load{});
  run();
  control::shard_load l;
  me->receive([&](const control::shard_load& x) { l = x; });
  CHECK(l.requests == 2);
  CHECK(l.misrouted == 0);
  CHECK(l.ranges.empty());
  CHECK(l.keys.empty());
  // The assignment that gives key 0 away leaves the session where it is.
  CHECK(l.sessions == 1);
  const seat other{"router/1", msg::Role::ROUTER, "h"};
  sees({{"router/0", msg::Role::ROUTER, "r"}, other});
  me->send(router, control::describe_load{});
  run();
  me->receive([&](const control::shard_load& x) { l = x; });
  CHECK(l.sessions == 1);
}

TEST_CASE_METHOD(fixture, "of ready shards two pass a worker's report on") {
  auto report = [&] {
    msg::draft<msg::WorkerReport> d;
    d->setWorker("both/p/a.0");
    d->setGeneration(7);
    auto e = std::move(d).freeze();
    REQUIRE(e);
    for (const auto* shard : {"router/0", "router/1"})
      office->send({shard, 0}, {"both/p/a.0", 7}, *e);
    run();
    return take_envelopes<msg::WorkerReport>(requests).size();
  };
  const auto first = router;
  router::router_options o;
  o.name = "router/1";
  o.models = {"m"};
  o.office = office;
  o.directory = directory;
  const auto second = own(router::spawn_router(system, std::move(o)));
  run();
  const std::vector<seat> both{{"requests/h", msg::Role::REQUESTS, "h"},
                               {"router/0", msg::Role::ROUTER, "r"},
                               {"router/1", msg::Role::ROUTER, "r"}};
  for (const auto& who : {first, second}) {
    router = who;
    sees(both);
  }
  CHECK(report() == 2);
  for (const auto& who : {first, second}) {
    router = who;
    sees({both[0], both[1]});
  }
  CHECK(report() == 1);
}

namespace {

/// Two shards, and a control host that a test plays.
struct pair_of_shards : fixture {
  static constexpr std::uint64_t key = 500;
  caf::actor first, second, control_host = capture();

  pair_of_shards() {
    office->bind("control", 0, control_host);
    caf::anon_send_exit(router, caf::exit_reason::kill);
    run();
    first = another("router/0");
    second = another("router/1");
    see({"router/0", "router/1"});
  }
  caf::actor another(const std::string& name) {
    router::router_options o;
    o.name = name;
    o.models = {"m"};
    o.office = office;
    o.directory = directory;
    o.assigned = std::make_shared<const control::assignment>(
        control::assignment::make({}, {"router/0", "router/1"}, {{0, {0}}}).value());
    const auto shard = own(router::spawn_router(system, std::move(o)));
    run();
    return shard;
  }
  void see(const std::vector<std::string>& ready, const std::vector<std::string>& draining = {}) {
    std::vector<seat> all{{"both/p/a.0", msg::Role::BOTH, "a"},
                          {"control", msg::Role::CONTROL, "a"}};
    for (const auto& s : ready) all.push_back({s, msg::Role::ROUTER, "a"});
    for (const auto& s : draining)
      all.push_back({s, msg::Role::ROUTER, "a", msg::EntryState::DRAINING});
    for (const auto& who : {first, second}) {
      router = who;
      sees(all);
    }
  }
  /// Why the shard has chosen whom it has.
  std::string asked_of(const std::string& shard, const std::string& session) {
    msg::draft<msg::RouteRequest> d;
    d->initKey();
    d->setReplyTo("requests/h");
    d->setModel("m");
    d->setPromptBytes(4'000);
    d->setSession(session);
    d->setShardKey(key);
    auto e = std::move(d).freeze();
    REQUIRE(e);
    office->send({shard, 0}, {"requests/h", 7}, *std::move(e));
    run();
    auto routes = take_envelopes<msg::Route>(requests);
    REQUIRE(routes.size() == 1);
    return msg::view<msg::Route> { routes[0].second } -> getReason().cStr();
  }
  void all_to(std::uint16_t shard, std::uint64_t generation) {
    msg::draft<msg::Assignment> d;
    control::write(
        *d, control::assignment::make({1, generation}, {"router/0", "router/1"}, {{0, {shard}}})
                .value());
    auto e = std::move(d).freeze();
    REQUIRE(e);
    for (const auto* to : {"router/0", "router/1"}) office->send({to, 0}, {"control", 1}, *e);
    run();
  }
  static auto knows_session() { return Catch::Contains("the session's last pair"); }
};

}  // namespace

TEST_CASE_METHOD(pair_of_shards, "sessions go where their keys go, and come back with them") {
  asked_of("router/0", "me");
  all_to(1, 1);
  CHECK_THAT(asked_of("router/1", "me"), knows_session());
  CHECK_THAT(asked_of("router/1", "somebody else"), !knows_session());
  all_to(0, 2);
  CHECK_THAT(asked_of("router/0", "somebody else"), knows_session());
  CHECK_THAT(asked_of("router/0", "me"), knows_session());
}

TEST_CASE_METHOD(pair_of_shards, "of a slice that gets a second shard, sessions go to the one that "
                                 "hubs ask for them") {
  // How it can fail: both have the key, and nobody gives anything away.
  all_to(1, 1);
  asked_of("router/1", "me");
  const auto a = control::assignment::make({1, 2}, {"router/0", "router/1"}, {{0, {0, 1}}}).value();
  REQUIRE(a.shard_of(key, key) == "router/0");
  msg::draft<msg::Assignment> d;
  control::write(*d, a);
  auto e = std::move(d).freeze();
  REQUIRE(e);
  for (const auto* to : {"router/0", "router/1"}) office->send({to, 0}, {"control", 1}, *e);
  run();
  CHECK_THAT(asked_of("router/0", "me"), knows_session());
}

TEST_CASE_METHOD(pair_of_shards, "a shard that drains says so, and gives its sessions to the one "
                                 "that is asked instead, which gives them back later") {
  asked_of("router/0", "me");
  take<directory::set_entry>(directory);
  caf::anon_send(first, router::drain_shard{});
  run();
  REQUIRE(announced() == std::vector{msg::EntryState::DRAINING});
  see({"router/1"}, {"router/0"});
  CHECK_THAT(asked_of("router/1", "me"), knows_session());
  // It ends, and another one begins in its place.
  caf::anon_send_exit(first, caf::exit_reason::kill);
  run();
  see({"router/1"});
  CHECK_THAT(asked_of("router/1", "me"), knows_session());
  first = another("router/0");
  see({"router/0", "router/1"});
  CHECK_THAT(asked_of("router/0", "me"), knows_session());
}

TEST_CASE_METHOD(pair_of_shards, "a shard that drains alone keeps what it knows") {
  asked_of("router/0", "me");
  caf::anon_send(first, router::drain_shard{});
  run();
  see({}, {"router/0"});
  CHECK_THAT(asked_of("router/0", "me"), knows_session());
}

TEST_CASE_METHOD(pair_of_shards, "each shard tells the control host regularly what it has leased") {
  asked_of("router/0", "me");
  asked_of("router/0", {});
  advance(router::account_interval + 50ms);
  const auto told = take_envelopes<msg::ShardLoad>(control_host);
  CHECK(told.size() >= 2);
  std::set<std::string> shards;
  for (const auto& [from, e] : told) {
    msg::view<msg::ShardLoad> in{e};
    const auto l = control::read(*in);
    shards.insert(l.shard);
    CHECK(from.from.name == l.shard);
    if (l.shard != "router/0") {
      CHECK(l.requests == 0);
      CHECK(l.ranges.empty());
      continue;
    }
    CHECK(l.requests == 2);
    CHECK(l.sessions == 1);
    CHECK(l.leases == 2);
    CHECK(l.misrouted == 0);
    CHECK(l.requests_per_second > 0);
    REQUIRE(l.ranges.size() == 1);
    CHECK(l.ranges[0].load > 0);
    REQUIRE(l.keys.size() == 1);
    CHECK(l.keys[0].key == key);
  }
  CHECK(shards.size() == 2);
  // Without one, nobody is told.
  for (const auto& who : {first, second}) {
    router = who;
    sees({{"router/0", msg::Role::ROUTER, "a"}, {"router/1", msg::Role::ROUTER, "a"}});
  }
  advance(2 * router::account_interval);
  CHECK(take_envelopes<msg::ShardLoad>(control_host).empty());
}
