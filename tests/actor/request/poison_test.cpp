// Requests that crash whatever runs them, and those that were only near.

#include "actors/request/poison_policy.hpp"
#include "gpu/engine/engine.hpp"
#include "tests/actor/request/stage.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

/// So many tokens prove that it is harmless where it is now.
std::vector<int> proof() { return std::vector<int>(engine::alone_passes, 1); }

}  // namespace

TEST_CASE_METHOD(stage, "a request that was nearly alone in a crash is tried alone, and convicted "
                        "only if it crashes an engine there") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1, 2});
  given(both);
  crash(both, {key, {{1, 1}, 0, 1}});
  auto again = asked_once();
  CHECK(again.key.attempt == 2);
  CHECK(again.quarantine);
  route(again.key, second);
  CHECK(given(second) == lines{"decode self 0/2 resumed 2 alone"});
  CHECK(c.sink->failures.empty());
  crash(second, {again.key});
  REQUIRE(c.sink->failures.size() == 1);
  CHECK(c.sink->said.back() == "failed 500 request_crashes_engine");
  CHECK_THAT(c.sink->failures[0].message, Catch::Contains(second.name));
  CHECK(asked().empty());
  check_all_released();
}

TEST_CASE_METHOD(stage, "the same content is refused for a while, other content is not") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  crash(both, {key});
  key = asked_once().key;
  route(key, second);
  crash(second, {key});
  CHECK(c.sink->said == lines{"failed 500 request_crashes_engine"});
  auto same = submit();
  CHECK(same.sink->said == lines{"failed 500 request_crashes_engine"});
  CHECK_THAT(same.sink->failures[0].message, Catch::Contains("refused for another"));
  CHECK(asked().empty());
  wish w;
  w.letter = 'y';
  auto other = submit(w);
  CHECK(other.sink->said.empty());
  CHECK(asked().size() == 1);
  advance(request::poison_refused_for);
  CHECK(submit().sink->said.empty());
}

TEST_CASE_METHOD(stage, "all hubs are told what is refused, and heed each other") {
  auto elsewhere = capture();
  office->bind("requests/other", 0, elsewhere);
  auto& e = entries["requests/other"];
  e.name = "requests/other";
  e.role = msg::Role::REQUESTS;
  view->set(std::make_shared<directory::snapshot>(entries));
  submit();
  auto key = asked_once().key;
  route(key, both);
  crash(both, {key});
  key = asked_once().key;
  route(key, second);
  crash(second, {key});
  auto told = take_envelopes<msg::PoisonNotice>(elsewhere);
  REQUIRE(told.size() == 1);
  msg::view<msg::PoisonNotice> in{told[0].second};
  CHECK(in->getForMs() == request::poison_refused_for.count());
  // Its word counts here, too.
  wish w;
  w.letter = 'z';
  auto before = submit(w);
  CHECK(before.sink->said.empty());
  msg::draft<msg::PoisonNotice> d;
  d->setFingerprint(in->getFingerprint() + 1);
  d->setForMs(1'000);
  to_hub("requests/other", std::move(d));
  CHECK(submit(w).sink->said.empty());  // another's fingerprint
}

TEST_CASE_METHOD(stage, "among many the one that is there twice is tried alone") {
  submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  crash(both, {key}, 333);
  auto again = asked_once();
  CHECK_FALSE(again.quarantine);
  route(again.key, second);
  CHECK(given(second) == lines{"decode self 0/2"});
  crash(second, {again.key}, 333);
  CHECK(asked_once().quarantine);
}

TEST_CASE_METHOD(stage, "a suspect that gets past the crash is no suspect any more") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  crash(both, {key});
  key = asked_once().key;
  const auto lease = route(key, second);
  tokens(key, second, 0, {1});
  released();
  CHECK(cleared.empty());
  tokens(key, second, 1, proof());
  released();
  CHECK(cleared == std::vector{lease});
  // What happens from now on, it is one of many again.
  crash(second, {key}, 1);
  auto again = asked_once();
  CHECK(again.quarantine);  // suspected, not convicted
  CHECK(c.sink->failures.empty());
}

TEST_CASE_METHOD(stage, "what an engine cannot compute is tried alone, and ended when a second one "
                        "fails at it there") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1, 2});
  fault(key, both);
  auto again = asked_once();
  CHECK(again.quarantine);
  CHECK(again.exclude == lines{both.name});
  route(again.key, second);
  CHECK(given(second) == lines{"decode self 0/2 resumed 2 alone"});
  SECTION("it is the prompt") {
    fault(again.key, second);
    again = asked_once();
    CHECK(again.quarantine);
    route(again.key, second);
    fault(again.key, second);  // who knows, second may be broken
    again = asked_in_time();
    route(again.key, both);
    fault(again.key, both);
    CHECK(c.sink->said.back() == "failed 500 request_not_computable");
    CHECK_THAT(c.sink->failures.at(0).message, Catch::Contains(both.name));
    CHECK(asked().empty());
    check_all_released();
    // That is no proof as a crash is: the next one is looked at anew.
    CHECK(submit().sink->said.empty());
  }
  SECTION("it was the engine") {
    tokens(again.key, second, 2, proof());
    fault(again.key, second, 5);
    again = asked_once();
    CHECK_FALSE(again.quarantine);
    CHECK(c.sink->failures.empty());
  }
}

TEST_CASE_METHOD(stage, "of many that one pass failed each goes on beside others, and of a pair "
                        "whose KV gives no numbers prefill may be the one") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  accept(key, prefill);
  fault(key, decode, 100);
  auto again = asked_once();
  CHECK_FALSE(again.quarantine);
  for (const auto* at : {&second, &decode, &second, &decode}) {
    route(again.key, *at, &prefill);
    fault(again.key, *at);
    again = asked_in_time();
    CHECK(again.quarantine);
  }
  CHECK(c.sink->failures.empty());
  // Neither alone, nor with it.
  route(again.key, both);
  fault(again.key, both);
  CHECK(c.sink->said.back() == "failed 500 request_not_computable");
}

TEST_CASE_METHOD(stage, "an innocent survives any number of crashes beside others") {
  wish w;
  w.timeout = 600s;
  auto c = submit(w);
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  std::uint32_t have = 0;
  auto now = both;
  for (int i = 0; i < 20; ++i) {
    tokens(key, now, have, proof());
    have += engine::alone_passes;
    crash(now, {key}, 10);
    const auto again = asked_in_time();
    CHECK_FALSE(again.quarantine);
    key = again.key;
    now.generation = both.generation + static_cast<std::uint64_t>(i) + 1;
    office->bind(now.name, now.generation, now.actor);
    now_is(now, msg::EntryState::READY, now.generation);
    route(key, now);
  }
  CHECK(c.sink->failures.empty());
}

TEST_CASE_METHOD(stage, "a stream that gets on between its losses goes on at once, however many") {
  wish w;
  w.timeout = 600s;
  auto c = submit(w);
  std::uint32_t have = 0;
  for (std::uint32_t i = 1; i <= 4 * request::attempts_max; ++i) {
    const auto key = asked_once().key;
    CHECK(key.attempt == i);
    route(key, both);
    if (i == 1) accept(key, both);
    tokens(key, both, have, proof());
    have += engine::alone_passes;
    bad_end<msg::JobFailed>(key, both, 503, "kv_exhausted", true);
  }
  CHECK(asked().size() == 1);
  CHECK(c.sink->failures.empty());
}

TEST_CASE_METHOD(stage, "suspects that come late stop an attempt that runs beside others already") {
  submit();
  auto old = asked_once().key;
  route(old, both);
  accept(old, both);
  bad_end<msg::JobFailed>(old, both, 503, "peer_failed", true);  // others knew sooner
  auto key = asked_once().key;
  bool asked_again = true;
  SECTION("it runs") {
    route(key, second);
    given(second);
    name_suspects(both, {old});
    CHECK(given(second) == lines{"cancel 0/2"});
  }
  SECTION("it waits for its route") { name_suspects(both, {old}); }
  SECTION("it waits for a quiet worker") {
    name_suspects(both, {old});
    refuse(asked_once().key, 503, "quarantine_full");
    CHECK(asked().empty());
    advance(1s);
  }
  SECTION("one of many goes on") {
    route(key, second);
    name_suspects(both, {old}, 100);
    asked_again = false;
  }
  if (asked_again)
    CHECK(asked_once().quarantine);
  else
    CHECK(asked().empty());
}

TEST_CASE_METHOD(stage, "waiting for a worker where it can be alone uses up no attempts") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  crash(both, {key});
  for (std::uint32_t i = 0; i < 5 * request::attempts_max; ++i) {
    auto again = asked_once();
    CHECK(again.quarantine);
    refuse(again.key, 503, "quarantine_full");
    advance(request::quarantine_retry_pause);
  }
  CHECK(c.sink->failures.empty());
  key = asked_once().key;
  route(key, second);
  accept(key, second);
  tokens(key, second, 0, {1}, stop);
  CHECK(c.sink->said.back() == "finished");
  // Its account tells of the wait once, not of each look.
  std::size_t records = 0;
  const auto json = hub.front->timeline_json(c.external_id);
  for (auto at = json.find("\"plan\""); at != std::string::npos; at = json.find("\"plan\"", at + 1))
    ++records;
  CHECK(records == 2);
}

TEST_CASE_METHOD(stage, "suspicion of others, of requests that are gone and of attempts to come is "
                        "not heeded") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  auto wrong = key;
  wrong.id.low += 1'000;
  auto prompt = key;
  prompt.prompt = 9;
  auto attempt = key;
  attempt.attempt = 5;
  name_suspects(both, {wrong, prompt, attempt}, 1);
  CHECK(asked().empty());
  bad_end<msg::JobFailed>(key, both, 503, "kv_exhausted", true);
  CHECK_FALSE(asked_once().quarantine);
  CHECK(c.sink->failures.empty());
}

TEST_CASE("when a node's budget of further attempts is used up, streams wait for it, and new "
          "requests are told to stay away") {
  stage s{10'000};
  const auto many = static_cast<std::size_t>(request::retry_burst) + 100;
  auto fresh = s.submit();
  const auto fresh_key = s.asked_once().key;
  s.route(fresh_key, s.second);
  std::vector<stage::client> streams;
  for (std::size_t i = 0; i < many; ++i) {
    streams.push_back(s.submit());
    const auto key = s.asked_once().key;
    s.route(key, s.both);
    s.accept(key, s.both);
  }
  s.now_is(s.both, msg::EntryState::STARTING, s.both.generation);
  CHECK(s.asked().size() == many - 100);
  CHECK(s.submit().sink->said == lines{"failed 503 failovers_first"});
  s.bad_end<msg::JobFailed>(fresh_key, s.second, 503, "kv_exhausted", true);
  CHECK(fresh.sink->said == lines{"failed 503 retry_budget_exhausted"});
  s.advance(1s);
  CHECK(s.asked().size() == 100);
  CHECK(s.submit().sink->said.empty());
  for (const auto& c : streams) CHECK(c.sink->failures.empty());
}
