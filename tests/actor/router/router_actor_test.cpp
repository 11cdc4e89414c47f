#include "actors/router/router_actor.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace troupe;

namespace {

struct fixture : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  caf::actor directory = capture();
  caf::actor requests = capture();
  caf::actor worker = capture();
  caf::actor router;
  std::map<std::string, capacity::cost_model> costs;

  fixture() {
    office->bind("requests/h", 0, requests);
    office->bind("both/p/a.0", 7, worker);
    start(1'000);
  }
  void start(std::uint64_t first_lease) {
    router::router_options o;
    o.host = "r";
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
    office->send({router::router_name, 0}, {from, generation}, *std::move(e));
    run();
  }
  void events(std::uint64_t sequence, bool reset = false) {
    msg::draft<msg::PrefixEvents> d;
    d->setWorker("both/p/a.0");
    d->setGeneration(7);
    d->setSequence(sequence);
    d->setReset(reset);
    d->initAdded(1).set(0, 42);
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
  events(0);
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
    office->send({router::router_name, 0}, {"requests/h", 0}, test::unreadable<Schema>());
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
    CHECK_FALSE(office->knows(router::router_name));
    start(0);
    tell(msg::EntryState::READY);
    ask();
    for (auto& [from, e] : take_envelopes<msg::Route>(requests))
      leases.insert(msg::view<msg::Route> { e } -> getLease());
  }
  CHECK(leases.size() == 3);
}
