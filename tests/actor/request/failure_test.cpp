#include "messages/job_codes.hpp"
#include "tests/actor/request/stage.hpp"

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(
    stage,
    "a rejected prompt is told to the client as the worker said it, without another attempt") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  given(decode);
  bad_end<msg::Rejected>(key, prefill, 400, "context_length_exceeded", false, "messages");
  CHECK(c.sink->said == lines{"failed 400 context_length_exceeded"});
  CHECK(c.sink->failures[0].parameter == "messages");
  CHECK(asked().empty());
  check_all_released();
  CHECK(given(decode) == lines{"cancel 0/1"});  // the other leg learns of it
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains("\"failed\""));
}

TEST_CASE_METHOD(stage, "a failed leg ends the other one and is avoided by the next attempt, which "
                        "goes on where the client is") {
  auto c = submit();
  auto first = asked_once().key;
  route(first, decode, &prefill);
  accept(first, prefill, 10, 6);
  prefill_done(first);
  tokens(first, decode, 0, {1, 2, 3});
  given(prefill), given(decode);
  bad_end<msg::JobFailed>(first, decode, 503, "kv_exhausted", true);
  CHECK(given(decode).empty());  // it said itself that it holds nothing
  CHECK(released().size() == 1);
  auto again = asked_once();
  CHECK(again.key == job_key{c.id, 0, 2});
  CHECK(again.exclude == lines{decode.name});
  CHECK(again.resumed == 3);
  route(again.key, second, &prefill);
  CHECK(given(second) == lines{"decode from prefill/p/a.0 0/2 resumed 3"});
  CHECK(given(prefill) == lines{"prefill to decode/p/c.0 0/2 resumed 3"});
  accept(again.key, prefill, 13, 0);
  tokens(again.key, second, 3, {4}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3, 4});
  // The client's usage is that of its own prompt.
  CHECK(c.sink->ends[0].prompt_tokens == 10);
  CHECK(c.sink->ends[0].cached_tokens == 6);
  CHECK(c.sink->ends[0].completion_tokens == 4);
  CHECK(c.sink->said == lines{"accepted 0 10/6", "delta 0", "delta 0", "finished"});
  prefill_done(again.key);
  check_all_released();
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains("kv_exhausted"));
}

TEST_CASE_METHOD(stage,
                 "of a prompt that is answered, prefill's job does not stay in the book when "
                 "the word of its end was lost") {
  wish w;
  w.prompts = 2;
  auto c = submit(w);
  const auto all = asked();
  REQUIRE(all.size() == 2);
  const auto& key = all[0].key;
  route(key, decode, &prefill);
  accept(key, prefill);
  tokens(key, decode, 0, {1}, stop);
  CHECK(hub.jobs->size() == 1);
  bad_end<msg::JobFailed>(key, prefill, 503, msg::job_lost, true);
  CHECK(hub.jobs->size() == 0);
  CHECK(c.sink->failures.empty());
  CHECK(asked().empty());
}

TEST_CASE_METHOD(stage, "a job that got lost on its way is done elsewhere") {
  submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  bad_end<msg::JobFailed>(key, decode, 503, "job_lost", true);
  CHECK(asked_once().exclude == lines{decode.name});
}

TEST_CASE_METHOD(stage, "what is said of a job that is not open any more has no effect") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  accept(key, prefill, 10, 6);
  prefill_done(key);
  tokens(key, decode, 0, {1, 2});
  bad_end<msg::JobFailed>(key, prefill, 503, "job_lost", true);
  tokens(key, decode, 2, {3}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3});
  CHECK(c.sink->ends.size() == 1);
}

TEST_CASE_METHOD(stage, "where the word of prefill's end was lost, the stream goes on") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  accept(key, prefill, 10, 6);
  tokens(key, decode, 0, {1, 2});
  bad_end<msg::JobFailed>(key, prefill, 503, "job_lost", true);
  tokens(key, decode, 2, {3}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3});
  CHECK(c.sink->ends.size() == 1);
  check_all_released();
}

TEST_CASE_METHOD(stage, "when prefill fails decode is cancelled") {
  submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  given(decode);
  bad_end<msg::JobFailed>(key, prefill, 503, "kv_exhausted", true);
  CHECK(given(decode) == lines{"cancel 0/1"});
  CHECK(asked_once().exclude == lines{prefill.name});
}

TEST_CASE_METHOD(stage, "a failed transfer is blamed on nobody alone, whoever tells of it first") {
  submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  const auto& teller = GENERATE(true, false) ? decode : prefill;
  bad_end<msg::JobFailed>(key, teller, 503, "peer_failed", true);
  CHECK(asked_once().exclude == lines{prefill.name, decode.name});
}

TEST_CASE_METHOD(stage, "what belongs to an old attempt has no effect") {
  auto c = submit();
  auto old = asked_once().key;
  route(old, both);
  accept(old, both);
  tokens(old, both, 0, {1});
  bad_end<msg::JobFailed>(old, both, 503, "queue_full", true);
  auto now = asked_once().key;
  const auto before = c.sink->said;
  tokens(old, both, 1, {2});
  accept(old, both, 99);
  bad_end<msg::JobFailed>(old, both, 400, "late", false);
  bad_end<msg::Rejected>(old, both, 400, "late", false);
  refuse(old, 404, "late");
  job_done(old, both);
  CHECK(c.sink->said == before);
  CHECK(asked().empty());
  released();
  const auto late = route(old, second);
  CHECK(given(second).empty());
  CHECK(released() == std::vector{late});
  route(now, second);
  tokens(now, second, 1, {2}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2});
  check_all_released();
}

TEST_CASE_METHOD(stage, "a batch of another incarnation of the worker is dropped") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  auto imposter = both;
  imposter.generation = 3;
  tokens(key, imposter, 0, {66});
  CHECK(c.sink->ids.empty());
  tokens(key, both, 0, {1}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1});
}

TEST_CASE_METHOD(stage, "a second route for the same attempt goes straight back") {
  submit();
  auto key = asked_once().key;
  route(key, both);
  const auto twice = route(key, second);
  CHECK(released() == std::vector{twice});
  CHECK(given(second).empty());
}

TEST_CASE_METHOD(stage, "a repeated batch is given once") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1, 2});
  tokens(key, both, 0, {1, 2});
  tokens(key, both, 2, {3}, stop);
  tokens(key, both, 2, {3}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3});
  CHECK(c.sink->ends.size() == 1);
  check_all_released();
}

TEST_CASE_METHOD(stage, "missing tokens end the attempt, not the stream") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1});
  given(both);
  tokens(key, both, 2, {3});
  CHECK(given(both) == lines{"cancel 0/1"});
  auto again = asked_once();
  CHECK(again.exclude == lines{both.name});
  CHECK(again.resumed == 1);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1});
  CHECK(c.sink->failures.empty());
}

TEST_CASE_METHOD(stage, "a worker that is done before its tokens are here has lost some") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1});
  job_done(key, both);
  CHECK(asked_once().resumed == 1);
  CHECK(c.sink->failures.empty());
}

TEST_CASE_METHOD(
    stage, "when the word of the acceptance is lost the request does not wait for its deadline") {
  auto c = submit();
  auto key = asked_once().key;
  SECTION("prefill has done its share") {
    route(key, decode, &prefill);
    tokens(key, decode, 0, {1}, stop);
    SECTION("before decode") {
      prefill_done(key);
      CHECK(given(decode).back() == "cancel 0/1");
    }
    SECTION("after decode") {
      job_done(key, decode);
      CHECK(asked().empty());  // prefill's word may be slower
      prefill_done(key);
    }
  }
  SECTION("one worker has done it all") {
    route(key, both);
    tokens(key, both, 0, {1}, stop);
    job_done(key, both);
  }
  const auto again = asked_once();
  CHECK(again.resumed == 0);
  route(again.key, second);
  accept(again.key, second);
  tokens(again.key, second, 0, {1}, stop);
  CHECK(c.sink->said == lines{"accepted 0 10/0", "delta 0", "finished"});
  check_all_released();
}

TEST_CASE_METHOD(stage, "there are only so many attempts, and the last error is told") {
  auto c = submit();
  for (std::uint32_t i = 1; i <= request::attempts_max; ++i) {
    auto r = asked_once();
    CHECK(r.key.attempt == i);
    route(r.key, both);
    bad_end<msg::JobFailed>(r.key, both, 503, "kv_exhausted", true);
    if (i > 1) advance(request::route_retry_pause);  // nobody else can, it seems
  }
  CHECK(asked().empty());
  CHECK(c.sink->said == lines{"failed 503 kv_exhausted"});
  check_all_released();
}

TEST_CASE_METHOD(stage, "a stream that the client reads outlives any number of lost workers") {
  wish w;
  w.timeout = 120s;
  auto c = submit(w);
  for (std::uint32_t i = 1; i <= 3 * request::attempts_max; ++i) {
    const auto key = asked_in_time().key;
    CHECK(key.attempt == i);
    route(key, both);
    if (i == 1) accept(key, both);
    bad_end<msg::JobFailed>(key, both, 503, "kv_exhausted", true);
  }
  CHECK(c.sink->failures.empty());
  advance(120s);
  CHECK(c.sink->said.back() == "failed 504 deadline_exceeded");
}

TEST_CASE_METHOD(stage, "a new request is told at once that nobody can serve it; a stream waits") {
  const auto all_are = [&](msg::EntryState state) {
    for (const auto* w : {&prefill, &decode, &second, &both})
      now_is(*w, state, entries.at(w->name).generation);
  };
  all_are(msg::EntryState::STARTING);
  auto fresh = submit();
  refuse(asked_once().key, 503, "no_ready_worker");
  CHECK(fresh.sink->said == lines{"failed 503 no_ready_worker"});
  CHECK(fresh.sink->failures[0].retry_after == 1s);
  all_are(msg::EntryState::READY);

  auto stream = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  tokens(key, both, 0, {1});
  bad_end<msg::JobFailed>(key, both, 503, "worker_stopping", true);
  refuse(asked_once().key, 503, "no_ready_worker");
  CHECK(stream.sink->failures.empty());
  CHECK(asked().empty());
  advance(1s);
  key = asked_once().key;
  route(key, both);
  tokens(key, both, 1, {2}, stop);
  CHECK(stream.sink->ids[{0, 0}] == std::vector{1, 2});
  check_all_released();
}

TEST_CASE_METHOD(
    stage,
    "a stream whose engines were all given up is told long before its deadline, but not at the "
    "first word") {
  auto stream = submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both);
  bad_end<msg::JobFailed>(key, both, 503, "worker_stopping", true);
  const auto refuse_for = [&](std::chrono::seconds time, const char* code) {
    for (auto left = time; left > 0s && stream.sink->failures.empty(); left -= 1s) {
      for (const auto& question : asked()) refuse(question.key, 503, code);
      advance(1s);
    }
  };
  refuse_for(19s, "engines_given_up");
  refuse_for(8s, "no_ready_worker");  // it counts from the beginning again
  refuse_for(19s, "engines_given_up");
  CHECK(stream.sink->failures.empty());
  refuse_for(30s, "engines_given_up");
  CHECK(stream.sink->said.back() == "failed 503 engines_given_up");
  check_all_released();
}

TEST_CASE_METHOD(stage, "an unknown model is told as it is") {
  auto c = submit();
  refuse(asked_once().key, 404, "model_not_found");
  CHECK(c.sink->said == lines{"failed 404 model_not_found"});
  check_all_released();
}

TEST_CASE_METHOD(stage, "a silent router is asked again, and in the end the client is told") {
  auto c = submit();
  auto first = asked_once().key;
  advance(request::route_timeout + 50ms);
  CHECK(asked().empty());
  // In the pause an answer is too late already: it would run beside the next attempt.
  const auto late = route(first, both);
  CHECK(released() == std::vector{late});
  CHECK(given(both).empty());
  advance(request::route_retry_pause);
  CHECK(asked_once().key.attempt == 2);
  advance(30s);
  CHECK(asked().size() == request::attempts_max - 2);
  CHECK(c.sink->said == lines{"failed 503 router_unavailable"});
  check_all_released();
}

TEST_CASE_METHOD(stage, "a router that answers in time is not taken as lost later") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  advance(10s);
  CHECK(asked().empty());
  CHECK(c.sink->said.empty());
}

TEST_CASE_METHOD(
    stage, "a worker that leaves, stops or is restarted ends the attempts at it, and only those") {
  auto c = submit(), other = submit();
  auto all = asked();
  route(all[0].key, decode, &prefill);
  route(all[1].key, both);
  given(decode), given(prefill), given(both);
  std::string reason;
  SECTION("its host is lost") {
    leaves(decode, "b");
    reason = "host b is lost";
  }
  SECTION("it left") { leaves(decode), reason = "it left the directory"; }
  SECTION("it failed") { now_is(decode, msg::EntryState::FAILED, 8), reason = "it stopped"; }
  SECTION("it was restarted, and the state between was not seen") {
    now_is(decode, msg::EntryState::READY, 9), reason = "it was restarted";
  }
  CHECK(given(prefill) == lines{"cancel 0/1"});
  CHECK(given(decode).empty());
  auto again = asked_once();
  CHECK(again.key == job_key{c.id, 0, 2});
  CHECK(again.exclude == lines{decode.name});
  CHECK(hub.jobs->size() == 1);
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains("running"));
  route(again.key, second);
  accept(again.key, second);
  tokens(again.key, second, 0, {1}, stop);
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains(reason));
}

TEST_CASE_METHOD(stage, "the timeline of many prompts is told now and then, and whole at the end") {
  // How it can fail: each prompt's news copies what is known of all others.
  wish w;
  w.prompts = 20;
  const auto c = submit(w);
  const auto keys = asked();
  REQUIRE(keys.size() == w.prompts);
  for (const auto& a : keys) route(a.key, both);
  for (const auto& a : keys) accept(a.key, both);
  const auto computed = [&] {
    const auto json = hub.front->timeline_json(c.external_id);
    std::size_t n = 0;
    for (auto at = json.find("both/"); at != std::string::npos; at = json.find("both/", at + 1))
      ++n;
    return n;
  };
  CHECK(computed() < w.prompts);
  for (const auto& a : keys) tokens(a.key, both, 0, {1}, stop);
  CHECK(c.sink->ends.size() == 1);
  CHECK(computed() == w.prompts);
}

TEST_CASE_METHOD(stage,
                 "the shard is told what came of its choice, once, and nothing of the prompt "
                 "by who goes on where another stopped") {
  // How it can fail: nobody tells it; or it learns that a prompt is cached which the same request
  // has left there.
  submit();
  auto key = asked_once().key;
  const auto first = next_lease;
  route(key, decode, &prefill);
  accept(key, prefill, 10);
  prefill_done(key, 6);
  tokens(key, decode, 0, {1});
  released();
  CHECK(outcomes == std::vector<outcome>{{first, 10, 6, 4'096, 700}});
  bad_end<msg::JobFailed>(key, decode, 503, "kv_exhausted", true);
  key = asked_once().key;
  route(key, decode, &prefill);
  prefill_done(key, 9);
  released();
  REQUIRE(outcomes.size() == 2);
  CHECK(outcomes[1] == outcome{first + 1, 0, 0, 4'096, 700});
  submit();
  key = asked_once().key;
  route(key, both);
  accept(key, both, 20, 12);
  tokens(key, both, 0, {1});
  tokens(key, both, 1, {2});
  released();
  REQUIRE(outcomes.size() == 3);
  CHECK(outcomes[2] == outcome{first + 2, 20, 12, 0, 0});
}

TEST_CASE_METHOD(stage, "a draining worker keeps its jobs") {
  submit();
  route(asked_once().key, both);
  given(both);
  now_is(both, msg::EntryState::DRAINING, both.generation);
  CHECK(asked().empty());
  CHECK(given(both).empty());
}

TEST_CASE_METHOD(stage,
                 "a job at a worker's new life survives the late news of the old one's end") {
  submit();
  auto key = asked_once().key;
  // The view is ahead of the hub's messages.
  entries[both.name].generation = 11;
  view->set(std::make_shared<directory::snapshot>(entries));
  office->bind(both.name, 11, both.actor);
  auto young = both;
  young.generation = 11;
  route(key, young);
  CHECK(given(both) == lines{"decode self 0/1"});
  now_is(both, msg::EntryState::READY, 11);
  CHECK(asked().empty());
  CHECK(given(both).empty());
}

TEST_CASE_METHOD(
    stage,
    "a route to a worker that this node knows to be gone is not waited for until the deadline") {
  auto c = submit();
  leaves(both);
  route(asked_once().key, both);
  CHECK(released().size() == 1);
  CHECK(hub.jobs->size() == 0);
  advance(request::route_retry_pause);
  auto again = asked_once();
  CHECK(again.key.attempt == 2);
  CHECK(again.exclude == lines{both.name});  // maybe only the router's host can reach it
  CHECK(c.sink->said.empty());
}
