// A hub among several router shards.

#include "actors/control/shard_map.hpp"
#include "actors/router/shard_name.hpp"
#include "tests/actor/request/stage.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t shard_count = 3;

struct sharded : stage {
  std::shared_ptr<control::shard_map> map;
  std::vector<caf::actor> shards{router, capture(), capture()};

  sharded() : sharded(std::make_shared<control::shard_map>(router::shard_names(shard_count))) {}
  explicit sharded(const std::shared_ptr<control::shard_map>& m)
      : stage(1'000, [m](request::hub_options& o, stage&) { o.shards = m; }), map(m) {
    for (std::size_t n = 1; n < shard_count; ++n) office->bind(router::shard_name(n), 0, shards[n]);
    for (std::size_t n = 0; n < shard_count; ++n) shard_is(n, msg::EntryState::READY, 70 + n);
    for (const auto& s : shards) take_envelopes<msg::RouteRelease>(s);
  }

  void shard_is(std::size_t n, msg::EntryState state, std::uint64_t generation) {
    auto& e = entries[router::shard_name(n)];
    e.name = router::shard_name(n);
    e.role = msg::Role::ROUTER;
    e.state = state;
    e.generation = generation;
    tell({{e}, {}});
  }
  void shard_is_gone(std::size_t n) {
    const auto e = entries.at(router::shard_name(n));
    entries.erase(e.name);
    tell({{}, {e}});
  }
  /// As this node sees them.
  void engines_are(msg::EntryState state) {
    for (auto& [name, e] : entries)
      if (e.role != msg::Role::ROUTER) e.state = state;
    view->set(std::make_shared<directory::snapshot>(entries));
  }
  void tell(directory::change c) {
    view->set(std::make_shared<directory::snapshot>(entries));
    caf::anon_send(hub.actor, directory::directory_changed{std::move(c), view->get(), ""});
    run();
  }

  struct question {
    std::size_t shard = 0;
    job_key key;
    std::uint64_t shard_key = 0;
    control::assignment_number by;
  };
  std::vector<question> questions() {
    std::vector<question> all;
    for (std::size_t n = 0; n < shard_count; ++n)
      for (auto& [from, e] : take_envelopes<msg::RouteRequest>(shards[n])) {
        msg::view<msg::RouteRequest> in{e};
        all.push_back({n,
                       msg::read(in->getKey()),
                       in->getShardKey(),
                       {in->getTerm(), in->getAssignmentGeneration()}});
      }
    return all;
  }
  question question_once() {
    const auto all = questions();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  /// Of one conversation, or of nobody's.
  client ask(const std::string& session = {}, std::vector<std::uint64_t> chain = {}) {
    capnp::MallocMessageBuilder b;
    b.initRoot<msg::Completion>().getPrompt().setText("x");
    auto content = std::make_shared<request::prompt_content>();
    content->words = capnp::messageToFlatArray(b);
    content->chain = std::move(chain);
    request::submission s;
    s.id = {0xD6E8'FEB8'6659'FD93ULL * next_id, next_id};
    ++next_id;
    s.external_id = "ext-" + std::to_string(s.id.low);
    s.model = "m";
    s.session = session;
    s.prompts = {content};
    s.timeout = 60s;
    auto sink = std::make_shared<recording_sink>();
    s.client = sink;
    client result{sink, s.id, s.external_id};
    REQUIRE(hub.front->submit(std::move(s)));
    run();
    return result;
  }
  void grant(std::size_t shard, const job_key& key, std::uint64_t lease, const played_worker& to) {
    msg::draft<msg::Route> d;
    write(d->initKey(), key);
    d->setPlan(msg::TransferPlan::LOCAL);
    auto out = d->initDecode();
    out.setName(to.name);
    out.setGeneration(to.generation);
    d->setLease(lease);
    to_hub(router::shard_name(shard), std::move(d));
  }
  void refuse_by(std::size_t shard, const job_key& key, const std::string& code) {
    msg::draft<msg::RouteRefused> d;
    write(d->initKey(), key);
    d->initFailure().setCode(code);
    d->getFailure().setHttpStatus(503);
    to_hub(router::shard_name(shard), std::move(d));
  }
  std::vector<std::uint64_t> given_back(std::size_t shard) {
    std::vector<std::uint64_t> all;
    for (auto& [from, e] : take_envelopes<msg::RouteRelease>(shards[shard]))
      for (auto l : msg::view<msg::RouteRelease> { e } -> getLeases()) all.push_back(l);
    return all;
  }
  /// Hubs' starts that a shard was told of.
  std::size_t starts_told(std::size_t shard) {
    std::size_t n = 0;
    for (auto& [from, e] : take_envelopes<msg::RouteRelease>(shards[shard]))
      if (msg::view<msg::RouteRelease> { e } -> getLeases().size() == 0) {
        CHECK(from.from.generation == 3);
        ++n;
      }
    return n;
  }
  void assign(control::assignment_number number, std::size_t to) {
    auto a = control::assignment::make(number, router::shard_names(shard_count),
                                       {{0, {static_cast<std::uint16_t>(to)}}});
    REQUIRE(a);
    msg::draft<msg::Assignment> d;
    control::write(*d, *a);
    to_hub("control", std::move(d));
  }
};

}  // namespace

TEST_CASE_METHOD(sharded, "a session stays at one shard, and many are spread over all") {
  std::set<std::size_t> used;
  for (int i = 0; i < 60; ++i) {
    const auto name = "session " + std::to_string(i);
    ask(name);
    const auto first = question_once();
    ask(name, {static_cast<std::uint64_t>(i), 9});
    const auto again = question_once();
    CHECK(first.shard == again.shard);
    CHECK(first.shard_key == again.shard_key);
    CHECK(map->get()->shard_of(first.shard_key) == router::shard_name(first.shard));
    used.insert(first.shard);
  }
  CHECK(used.size() == shard_count);
}

TEST_CASE_METHOD(sharded, "without a session the prompt's beginning decides, and without that "
                          "each request goes somewhere else") {
  std::set<std::size_t> used;
  for (std::uint64_t first = 1; first < 60; ++first) {
    ask({}, {first});
    const auto a = question_once();
    ask({}, {first, 17, 18});
    CHECK(question_once().shard == a.shard);
    used.insert(a.shard);
  }
  CHECK(used.size() == shard_count);
  used.clear();
  for (int i = 0; i < 60; ++i) {
    ask();
    used.insert(question_once().shard);
  }
  CHECK(used.size() == shard_count);
}

TEST_CASE_METHOD(sharded, "a silent shard is followed by another, and its late lease goes back to "
                          "it, not to the one that was asked instead") {
  ask("s");
  const auto first = question_once();
  advance(request::route_timeout - 50ms);
  CHECK(questions().empty());
  advance(request::route_retry_pause + 100ms);
  const auto second = question_once();
  CHECK(second.shard != first.shard);
  CHECK(second.key.attempt == first.key.attempt + 1);
  grant(first.shard, first.key, 11, both);
  CHECK(given_back(first.shard) == std::vector<std::uint64_t>{11});
  CHECK(given_back(second.shard).empty());
  CHECK(given(both).empty());
  // The same number of another shard's is another lease.
  grant(second.shard, second.key, 11, both);
  CHECK(given(both).size() == 1);
  CHECK(given_back(second.shard).empty());
  accept(second.key, both);
  tokens(second.key, both, 0, {1}, msg::FinishReason::STOP);
  advance(1s);
  CHECK(given_back(second.shard) == std::vector<std::uint64_t>{11});
  CHECK(given_back(first.shard).empty());
}

TEST_CASE_METHOD(sharded, "who has just been silent is passed over by other requests, for a while, "
                          "and is asked again then") {
  ask("s");
  const auto first = question_once();
  advance(request::route_timeout + request::route_retry_pause + 50ms);
  question_once();
  ask("s");
  const auto other = question_once();
  CHECK(other.shard != first.shard);
  CHECK(other.key.attempt == 1);
  advance(request::silent_shard_rest);
  questions();
  ask("s");
  CHECK(questions().back().shard == first.shard);
}

TEST_CASE_METHOD(sharded,
                 "a shard that knows no worker is followed by each other one that is ready, "
                 "once, and only the last one's refusal is final") {
  // How it can fail: the first refusal ends it; a shard is asked twice; one that is not ready is.
  engines_are(msg::EntryState::STARTING);
  for (const auto* code : {"no_ready_worker", "router_overloaded"}) {
    const auto c = ask("s");
    std::set<std::size_t> asked;
    for (std::size_t n = 0; n < shard_count; ++n) {
      CHECK(c.sink->failures.empty());
      const auto q = question_once();
      asked.insert(q.shard);
      refuse_by(q.shard, q.key, code);
    }
    CHECK(asked.size() == shard_count);
    CHECK(questions().empty());
    REQUIRE(c.sink->failures.size() == 1);
    CHECK(c.sink->failures[0].code == code);
  }
  engines_are(msg::EntryState::READY);
  const auto served = ask("s");
  const auto first = question_once();
  for (std::size_t n = 0; n < shard_count; ++n)
    if (n != first.shard) {
      shard_is(n, msg::EntryState::STARTING, 70 + n);
      break;
    }
  refuse_by(first.shard, first.key, "no_ready_worker");
  const auto second = question_once();
  CHECK(second.shard != first.shard);
  CHECK(entries.at(router::shard_name(second.shard)).state == msg::EntryState::READY);
  grant(second.shard, second.key, 5, both);
  CHECK(given(both).size() == 1);
  CHECK(served.sink->failures.empty());
  // What no shard knows of is told at once.
  const auto unknown = ask("s");
  const auto q = question_once();
  refuse_by(q.shard, q.key, "model_not_found");
  CHECK(questions().empty());
  CHECK(unknown.sink->failures.size() == 1);
}

TEST_CASE_METHOD(sharded, "a shard that sees only who has just refused is followed by each other "
                          "one, and by a pause then") {
  // How it can fail: attempts are used up at a worker that drains while another shard sees more.
  const auto drains = [&](const question& q) {
    grant(q.shard, q.key, 20 + q.key.attempt, both);
    CHECK(given(both).size() == 1);
    bad_end<msg::Rejected>(q.key, both, 503, "draining", true);
  };
  const auto c = ask("s");
  const auto first = question_once();
  drains(first);
  const auto again = question_once();
  CHECK(again.shard == first.shard);  // it is told whom to avoid
  drains(again);
  std::set<std::size_t> asked{first.shard};
  for (std::size_t n = 1; n < shard_count; ++n) {
    const auto q = question_once();
    asked.insert(q.shard);
    drains(q);
  }
  CHECK(asked.size() == shard_count);
  CHECK(questions().empty());
  advance(request::route_retry_pause + 50ms);
  CHECK(question_once().shard == first.shard);
  CHECK(c.sink->failures.empty());
}

TEST_CASE_METHOD(sharded, "where all shards refuse what this node sees engines for, they are asked "
                          "again") {
  const auto c = ask("s");
  const auto all_refuse = [&] {
    for (std::size_t n = 0; n < shard_count; ++n) {
      const auto q = question_once();
      refuse_by(q.shard, q.key, "no_ready_worker");
    }
    CHECK(questions().empty());
  };
  all_refuse();
  advance(2 * request::route_retry_pause + 50ms);
  CHECK(c.sink->failures.empty());
  SECTION("it is served then") {
    const auto q = question_once();
    grant(q.shard, q.key, 5, both);
    CHECK(given(both).size() == 1);
  }
  SECTION("until this node doesn't see them either") {
    engines_are(msg::EntryState::DRAINING);
    all_refuse();
    REQUIRE(c.sink->failures.size() == 1);
    CHECK(c.sink->failures[0].code == "no_ready_worker");
  }
}

TEST_CASE_METHOD(sharded,
                 "also an answer to a move ends the search for a shard that answers, and a loss "
                 "is no silence") {
  // How it can fail: a stream that was moved goes on asking shards that are not its own.
  ask("s");
  const auto first = question_once();
  grant(first.shard, first.key, 5, both);
  accept(first.key, both);
  tokens(first.key, both, 0, {1});
  const auto wants_to_leave = [&] {
    msg::draft<msg::MoveNotice> d;
    write(d->initKey(), first.key);
    d->setWorker(both.name);
    d->setWanted();
    to_hub(both.name, std::move(d));
    return question_once();
  };
  CHECK(wants_to_leave().shard == first.shard);
  SECTION("silence") {
    advance(request::route_timeout + 50ms);
    const auto second = wants_to_leave();
    CHECK(second.shard != first.shard);
    refuse_by(second.shard, second.key, "no_place_to_move");
    advance(request::silent_shard_rest);
  }
  SECTION("loss") {
    shard_is_gone(first.shard);
    shard_is(first.shard, msg::EntryState::READY, 99);
  }
  CHECK(wants_to_leave().shard == first.shard);
}

TEST_CASE_METHOD(sharded, "what a lost shard owes is asked elsewhere at once") {
  ask("s");
  const auto first = question_once();
  shard_is_gone(first.shard);
  advance(request::route_retry_pause + 50ms);
  const auto second = question_once();
  CHECK(second.shard != first.shard);
  grant(second.shard, second.key, 5, both);
  CHECK(given(both).size() == 1);
}

TEST_CASE_METHOD(sharded, "a shard is not silent for what it never got") {
  // How it can fail: a node that has just begun takes shards for silent that it asked before it saw
  // them, and fails what another, which knows less, refuses.
  ask("s");
  const auto lost = question_once();
  SECTION("it has answered younger questions") {
    advance(request::route_timeout / 2);
    ask("s");
    const auto younger = question_once();
    CHECK(younger.shard == lost.shard);
    grant(younger.shard, younger.key, 11, both);
    advance(request::route_timeout / 2 + request::route_retry_pause + 50ms);
  }
  SECTION("it was out of sight") {
    shard_is_gone(lost.shard);
    advance(request::route_retry_pause + 50ms);
    questions();
    const auto name = router::shard_name(lost.shard);
    caf::anon_send(hub.actor, request::route_awaited{lost.key, name, 0});
    run();
    shard_is(lost.shard, msg::EntryState::READY, 99);
    advance(request::route_timeout + request::route_retry_pause + 50ms);
  }
  questions();
  ask("s");
  CHECK(question_once().shard == lost.shard);
}

TEST_CASE_METHOD(sharded, "a shard that begins anew hears of this hub, and is asked again") {
  ask("s");
  const auto first = question_once();
  shard_is(first.shard, msg::EntryState::READY, 99);
  CHECK(starts_told(first.shard) == 1);
  advance(request::route_retry_pause + 50ms);
  CHECK(question_once().key.attempt == first.key.attempt + 1);
  // The same incarnation in another state is no news of that kind.
  shard_is(first.shard, msg::EntryState::DRAINING, 99);
  CHECK(starts_told(first.shard) == 0);
  advance(request::route_retry_pause + 50ms);
  CHECK(questions().empty());
}

TEST_CASE_METHOD(sharded, "an answer, or a new life, ends a silent shard's rest") {
  ask("s");
  const auto first = question_once();
  advance(request::route_timeout + request::route_retry_pause + 50ms);
  question_once();
  SECTION("a late answer") { grant(first.shard, first.key, 11, both); }
  SECTION("a new life") { shard_is(first.shard, msg::EntryState::READY, 99); }
  ask("s");
  CHECK(question_once().shard == first.shard);
}

TEST_CASE_METHOD(sharded,
                 "what is asked of a shard that is gone by then is asked elsewhere at once, "
                 "and the next one is not blamed") {
  // How it can fail: it is owed for 2 s, and the younger shard of that name is passed over then.
  ask("s");
  const auto first = question_once();
  const auto name = router::shard_name(first.shard);
  const auto known = entries.at(name).generation;
  bool there = false;
  SECTION("gone") { entries.erase(name); }
  SECTION("another") {
    entries.at(name).generation = 99;
    there = true;
  }
  view->set(std::make_shared<directory::snapshot>(entries));
  caf::anon_send(hub.actor, request::route_awaited{first.key, name, known});
  run();
  advance(request::route_retry_pause + 50ms);
  const auto again = question_once();
  CHECK(again.key.attempt == 2);
  CHECK((again.shard == first.shard) == there);
}

TEST_CASE_METHOD(sharded,
                 "a shard that a new hub hears of for the first time owes what it was asked") {
  stage s{1'000, [](request::hub_options& o, stage&) {
            o.shards = std::make_shared<control::shard_map>(router::shard_names(1));
          }};
  auto& e = s.entries["router/0"];
  e.name = "router/0";
  e.role = msg::Role::ROUTER;
  e.state = msg::EntryState::READY;
  e.generation = 70;
  s.submit();  // before the directory has told of any shard
  const auto key = s.asked_once().key;
  s.view->set(std::make_shared<directory::snapshot>(s.entries));
  caf::anon_send(s.hub.actor, directory::directory_changed{{{e}, {}}, s.view->get(), ""});
  s.run();
  s.advance(request::route_retry_pause + 50ms);
  CHECK(s.asked().empty());
  s.route(key, s.both);
  CHECK(s.given(s.both).size() == 1);
}

TEST_CASE("each shard hears of a hub's start") {
  stage s{100, [](request::hub_options& o, stage& me) {
            me.office->bind("router/1", 0, me.both.actor);
            o.shards = std::make_shared<control::shard_map>(router::shard_names(2));
          }};
  for (const auto& who : {s.router, s.both.actor}) {
    auto told = s.take_envelopes<msg::RouteRelease>(who);
    REQUIRE(told.size() == 1);
    CHECK(told[0].first.from.generation == 3);
  }
}

TEST_CASE_METHOD(sharded, "a shard that begins or drains is left in peace while another is ready") {
  ask("s");
  const auto home = question_once().shard;
  shard_is(home, msg::EntryState::DRAINING, 70 + home);
  ask("s");
  const auto other = question_once().shard;
  CHECK(other != home);
  for (std::size_t n = 0; n < shard_count; ++n)
    if (n != home) shard_is(n, msg::EntryState::STARTING, 70 + n);
  ask("s");
  CHECK(question_once().shard == home);
}

TEST_CASE_METHOD(sharded, "when all shards are lost requests fail in the end, and one that comes "
                          "back in time serves") {
  for (std::size_t n = 0; n < shard_count; ++n) {
    shard_is_gone(n);
    office->unbind(router::shard_name(n), 0);
  }
  const auto lost = ask("s");
  std::optional<client> saved;
  SECTION("for good") {
    advance(request::attempts_max * (request::route_timeout + request::route_retry_pause) + 1s);
    REQUIRE(lost.sink->failures.size() == 1);
    CHECK(lost.sink->failures[0].code == "router_unavailable");
    CHECK(lost.sink->failures[0].http_status == 503);
  }
  SECTION("for a while") {
    advance(3s);
    office->bind("router/1", 0, shards[1]);
    shard_is(1, msg::EntryState::STARTING, 200);
    advance(3s);
    const auto all = questions();
    REQUIRE_FALSE(all.empty());
    CHECK(all.back().shard == 1);
    grant(1, all.back().key, 5, both);
    CHECK(given(both).size() == 1);
  }
}

TEST_CASE_METHOD(sharded,
                 "prompts that must be alone all go to one shard, which knows where they are") {
  // How it can fail: each goes to its own shard, and two are put at one worker.
  std::set<std::size_t> before, after;
  for (int i = 0; i < 12; ++i) {
    ask("session " + std::to_string(i));
    const auto q = question_once();
    before.insert(q.shard);
    grant(q.shard, q.key, 50 + static_cast<std::uint64_t>(i), both);
    crash(both, {q.key});
    const auto alone = questions();
    REQUIRE_FALSE(alone.empty());
    CHECK(alone.back().shard_key == request::quarantine_way("m").key);
    after.insert(alone.back().shard);
    now_is(both, msg::EntryState::READY, both.generation);
  }
  CHECK(before.size() == shard_count);
  CHECK(after.size() == 1);
}

TEST_CASE_METHOD(sharded, "requests go by the newest assignment, and say by which") {
  assign({2, 5}, 1);
  for (int i = 0; i < 20; ++i) ask();
  for (const auto& q : questions()) {
    CHECK(q.shard == 1);
    CHECK(q.by == control::assignment_number{2, 5});
  }
  assign({1, 9}, 2);  // of a control host that has been replaced
  assign({2, 5}, 2);
  ask();
  CHECK(question_once().shard == 1);
  assign({2, 6}, 2);
  ask();
  CHECK(question_once().shard == 2);
  // One that is not to be believed changes nothing.
  msg::draft<msg::Assignment> d;
  d->setTerm(9);
  d->initShards(1).set(0, "router/0");
  to_hub("control", std::move(d));
  ask();
  CHECK(question_once().shard == 2);
}
