#include "tests/actor/request/stage.hpp"
#include "tests/support/unreadable.hpp"

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(
    stage,
    "when the client goes away both workers and the router are told, and it is not called again") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  accept(key, prefill);
  given(decode), given(prefill);
  hub.front->cancel(c.id, "client went away");
  run();
  CHECK(given(decode) == lines{"cancel 0/1"});
  CHECK(given(prefill) == lines{"cancel 0/1"});
  CHECK(released().size() == 1);
  tokens(key, decode, 0, {1}, stop);
  CHECK(c.sink->said == lines{"accepted 0 10/0"});
  CHECK(c.sink.use_count() == 1);
  check_all_released();
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains("\"cancelled\""));
}

TEST_CASE_METHOD(stage, "a request that has ended leaves no timer behind: it would hold what is "
                        "left of the request until then") {
  const auto serve = [&](bool apart) {
    auto c = submit();
    auto key = asked_once().key;
    route(key, decode, apart ? &prefill : nullptr);
    accept(key, apart ? prefill : decode);
    if (apart) prefill_done(key);
    tokens(key, decode, 0, {1}, stop);
    REQUIRE(c.sink->said.back() == "finished");
  };
  serve(true);  // the hub has its timers now
  const auto timers = scheduler.clock().schedule().size();
  for (int i = 0; i < 10; ++i) serve(i % 2 == 0);
  CHECK(scheduler.clock().schedule().size() == timers);
  check_all_released();
}

TEST_CASE_METHOD(stage, "cancelled before there is a route: the late route goes back") {
  auto c = submit();
  auto key = asked_once().key;
  hub.front->cancel(c.id, "client went away");
  run();
  CHECK(hub.gate->open() == 0);
  route(key, both);
  CHECK(released().size() == 1);
  CHECK(given(both).empty());
}

TEST_CASE_METHOD(stage, "a route that finds its request ended, but not yet forgotten, goes back") {
  auto c = submit();
  auto key = asked_once().key;
  // Both lie in the mailbox of the hub, and then of the request: the first ends it.
  msg::draft<msg::Route> d;
  write(d->initKey(), key);
  d->initDecode().setName(both.name);
  d->setLease(99);
  granted.insert(99);
  hub.front->cancel(c.id, "client went away");
  to_hub("router/0", std::move(d));
  CHECK(released() == std::vector<std::uint64_t>{99});
  CHECK(given(both).empty());
  check_all_released();
}

TEST_CASE_METHOD(stage, "at the deadline everything ends, in each phase") {
  auto c = submit({.timeout = 1'500ms});
  auto key = asked_once().key;
  lines said{"failed 504 deadline_exceeded"};
  SECTION("while the router is asked") {}
  SECTION("while prefill works") { route(key, decode, &prefill); }
  SECTION("in the stream") {
    route(key, decode, &prefill);
    accept(key, prefill);
    said.insert(said.begin(), "accepted 0 10/0");
  }
  advance(1'400ms);
  CHECK(c.sink->failures.empty());
  advance(200ms);
  CHECK(c.sink->said == said);
  check_all_released();
}

TEST_CASE_METHOD(stage, "a job's deadline is what is left of the request's") {
  submit({.timeout = 10s});
  auto key = asked_once().key;
  advance(1s);
  route(key, both);
  auto jobs = take_envelopes<msg::DecodeJob>(both.actor);
  REQUIRE(jobs.size() == 1);
  msg::view<msg::DecodeJob> job{jobs[0].second};
  CHECK(job->getJob().getDeadlineMs() == 9'000);
  CHECK(job->getJob().getLeaseMs() == 3'000);
}

TEST_CASE_METHOD(stage, "a finished request's deadline and late messages do nothing") {
  auto c = submit({.timeout = 2s});
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1}, stop);
  const auto said = c.sink->said;
  hub.front->cancel(c.id, "late");
  tokens(key, both, 1, {2});
  bad_end<msg::JobFailed>(key, both, 500, "late", true);
  advance(3s);
  CHECK(c.sink->said == said);
  CHECK(asked().empty());
  check_all_released();
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains("\"done\""));
}

TEST_CASE_METHOD(stage, "a message that cannot be read does not end the node's requests") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  auto garble = [&]<class Schema>(Schema*) {
    office->send({"requests/h", 0}, {both.name, 0}, unreadable<Schema>());
  };
#define GARBLE(Schema) garble(static_cast<msg::Schema*>(nullptr));
  TROUPE_ENVELOPE_SCHEMAS(GARBLE)
#undef GARBLE
  run();
  CHECK(c.sink->said.empty());
  accept(key, both);
  tokens(key, both, 0, {1}, stop);
  CHECK(c.sink->ends.size() == 1);
  check_all_released();
}

TEST_CASE_METHOD(stage,
                 "when the hub dies, requests release what they hold and their clients are told") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  given(decode), given(prefill);
  caf::anon_send_exit(hub.actor, caf::exit_reason::kill);
  run();
  CHECK(c.sink->said == lines{"failed 500 internal_error"});
  CHECK(given(decode) == lines{"cancel 0/1"});
  CHECK(given(prefill) == lines{"cancel 0/1"});
  check_all_released();
}

TEST_CASE_METHOD(stage,
                 "a hub says at its start in which incarnation it is, and in each question") {
  auto said = take_envelopes<msg::RouteRelease>(router);
  REQUIRE(said.size() == 1);
  CHECK(said[0].first.from.name == "requests/h");
  CHECK(said[0].first.from.generation == 3);
  submit();
  auto questions = take_envelopes<msg::RouteRequest>(router);
  REQUIRE(questions.size() == 1);
  CHECK(questions[0].first.from.generation == 3);
}

TEST_CASE_METHOD(stage, "a hub that ends late does not take its successor's name away") {
  office->bind("requests/h", 4, both.actor);
  caf::anon_send_exit(hub.actor, caf::exit_reason::kill);
  run();
  CHECK(office->knows("requests/h"));
}

TEST_CASE_METHOD(stage, "what is submitted to a dead hub holds nothing, not even its client") {
  auto submit_one = [&] {
    auto sink = std::make_shared<recording_sink>();
    request::submission s;
    s.client = sink;
    REQUIRE(hub.front->submit(std::move(s)));
    return sink;
  };
  std::shared_ptr<recording_sink> sink;
  SECTION("it lies in the mailbox") {
    sink = submit_one();
    caf::anon_send_exit(hub.actor, caf::exit_reason::kill);
    run();
  }
  SECTION("it comes later") {
    caf::anon_send_exit(hub.actor, caf::exit_reason::kill);
    run();
    sink = submit_one();
  }
  run();
  CHECK(sink.use_count() == 1);
  CHECK(hub.gate->open() == 0);
}

TEST_CASE("above the limit of open requests the desk says no, and the client is not called") {
  stage s{1};
  auto c = s.submit();
  request::submission more;
  auto sink = std::make_shared<recording_sink>();
  more.client = sink;
  auto refused = s.hub.front->submit(std::move(more));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "too_many_requests");
  s.hub.front->cancel(c.id, "enough");
  s.run();
  s.submit();
  CHECK(sink->said.empty());
}

TEST_CASE_METHOD(stage,
                 "models are ready when a whole way through them is, and say what is missing") {
  CHECK(hub.front->models().at(0).ready);
  for (auto& [name, e] : entries) e.role = msg::Role::PREFILL;
  view->set(std::make_shared<directory::snapshot>(entries));
  CHECK_FALSE(hub.front->models().at(0).ready);
  CHECK_THAT(hub.front->models().at(0).reason, Catch::Contains("a decode engine is missing"));
  entries[second.name].role = msg::Role::DECODE;
  entries[second.name].state = msg::EntryState::LOADING;
  entries[second.name].detail = "40 %";
  view->set(std::make_shared<directory::snapshot>(entries));
  CHECK_THAT(hub.front->models().at(0).reason,
             Catch::Contains("decode/p/c.0 is loading its model (40 %)"));
  entries[second.name].state = msg::EntryState::READY;
  view->set(std::make_shared<directory::snapshot>(entries));
  CHECK(hub.front->models().at(0).ready);
}
