#include "tests/actor/request/stage.hpp"

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(stage, "one worker does it all: accepted, tokens, finished") {
  auto c = submit();
  CHECK(hub.gate->open() == 1);
  auto r = asked_once();
  CHECK(r.key == job_key{c.id, 0, 1});
  CHECK(r.exclude.empty());
  route(r.key, both);
  CHECK(given(both) == lines{"decode self 0/1"});
  CHECK(hub.jobs->size() == 1);
  const std::string echo{"once\0upon", 9};
  accept(r.key, both, 12, 5, echo);
  tokens(r.key, both, 0, {1, 2});
  tokens(r.key, both, 2, {3}, stop);
  CHECK(c.sink->said == lines{"accepted 0 12/5 " + echo, "delta 0", "delta 0", "finished"});
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3});
  CHECK(c.sink->ends[0].prompt_tokens == 12);
  CHECK(c.sink->ends[0].cached_tokens == 5);
  CHECK(c.sink->ends[0].completion_tokens == 3);
  job_done(r.key, both);
  check_all_released();
  CHECK(given(both).empty());  // nothing was left to cancel
  CHECK(c.sink.use_count() == 1);
  CHECK_THAT(hub.front->timeline_json(c.external_id),
             Catch::Contains("\"done\"") && Catch::Contains("\"completion_tokens\":3") &&
                 Catch::Contains("\"plan\":\"local\""));
}

TEST_CASE_METHOD(stage, "prefill and decode apart get jobs of one attempt with one token, and the "
                        "timeline tells of the transfer") {
  auto c = submit();
  auto key = asked_once().key;
  const auto lease = route(key, decode, &prefill);
  CHECK(given(decode) == lines{"decode from prefill/p/a.0 0/1"});
  CHECK(given(prefill) == lines{"prefill to decode/p/b.0 0/1"});
  REQUIRE(tokens_of_jobs.size() == 2);
  CHECK(tokens_of_jobs[0].size() == 16);
  CHECK(tokens_of_jobs[0] == tokens_of_jobs[1]);
  CHECK(hub.jobs->size() == 2);
  accept(key, prefill, 10);
  prefill_done(key, 4);
  CHECK(hub.jobs->size() == 1);
  CHECK(released().empty());
  CHECK(prefills_released == std::vector{lease});  // the rest when decode ends
  accept(key, decode, 10, 9);  // decode's own, once the KV is there: the client knows already
  tokens(key, decode, 0, {1}, stop);
  CHECK(c.sink->said == lines{"accepted 0 10/0", "delta 0", "finished"});
  CHECK(c.sink->ends[0].cached_tokens == 4);
  check_all_released();
  CHECK(given(prefill).empty());
  CHECK(given(decode).empty());
  CHECK_THAT(hub.front->timeline_json(c.external_id), Catch::Contains("\"bytes\":4096") &&
                                                          Catch::Contains("\"compute_ms\":2.5") &&
                                                          Catch::Contains("\"to_token\":9"));
}

TEST_CASE_METHOD(stage, "two attempts never share a transfer token") {
  submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  bad_end<msg::JobFailed>(key, decode, 503, "kv_exhausted", true);
  route(asked_once().key, second, &prefill);
  given(decode), given(second), given(prefill);
  REQUIRE(tokens_of_jobs.size() == 4);
  CHECK(std::set(tokens_of_jobs.begin(), tokens_of_jobs.end()).size() == 2);
}

TEST_CASE_METHOD(stage, "prefill's account may be later than a short answer, and is still told") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  accept(key, prefill);
  tokens(key, decode, 0, {1}, stop);
  CHECK(c.sink->ends.size() == 1);
  CHECK(hub.gate->open() == 0);  // but nobody waits for that
  CHECK(c.sink.use_count() == 1);
  CHECK(released().size() == 1);
  given(prefill);
  prefill_done(key);
  check_all_released();
  CHECK(given(prefill).empty());
  CHECK_THAT(hub.front->timeline_json(c.external_id),
             Catch::Contains("\"bytes\":4096") && Catch::Contains("\"done\""));
}

TEST_CASE_METHOD(stage, "a prefill that says nothing after the answer is cancelled in the end") {
  submit();
  auto key = asked_once().key;
  route(key, decode, &prefill);
  given(prefill);
  accept(key, prefill);
  tokens(key, decode, 0, {1}, stop);
  check_all_released();
  CHECK(given(prefill) == lines{"cancel 0/1"});
}

TEST_CASE_METHOD(stage, "tokens that overtake the acceptance wait for it") {
  auto c = submit();
  auto key = asked_once().key;
  // Decode's way may be shorter than that of prefill, which accepts.
  route(key, decode, &prefill);
  tokens(key, decode, 0, {1});
  tokens(key, decode, 1, {2}, stop);
  job_done(key, decode);
  CHECK(c.sink->said.empty());
  accept(key, prefill);
  CHECK(c.sink->said == lines{"accepted 0 10/0", "delta 0", "delta 0", "finished"});
  prefill_done(key);
  check_all_released();
}

TEST_CASE_METHOD(stage, "tokens that nobody ever accepts do not pile up") {
  auto c = submit();
  auto key = asked_once().key;
  route(key, both);
  for (std::uint32_t i = 0; i < 256; ++i) tokens(key, both, i, {1});
  CHECK(asked().empty());
  tokens(key, both, 256, {1});
  CHECK(asked_once().exclude == lines{both.name});
  CHECK(c.sink->said.empty());
}

TEST_CASE_METHOD(stage, "several prompts with several choices end together") {
  auto c = submit({.prompts = 2, .choices = 2});
  auto all = asked();
  REQUIRE(all.size() == 2);
  const auto a = all[0].key, b = all[1].key;
  CHECK(a.prompt == 0);
  CHECK(b.prompt == 1);
  route(a, both);
  route(b, decode, &prefill);
  accept(a, both, 3);
  accept(b, prefill, 4);
  prefill_done(b);
  tokens(a, both, 0, {1}, stop, 0);
  tokens(a, both, 0, {2, 3}, stop, 1);
  CHECK(released().size() == 1);  // the first prompt's route is free before the second has ended
  tokens(b, decode, 0, {4}, stop, 1);
  CHECK(c.sink->ends.empty());
  tokens(b, decode, 0, {5}, stop, 0);
  REQUIRE(c.sink->ends.size() == 1);
  CHECK(c.sink->ends[0].prompt_tokens == 7);
  CHECK(c.sink->ends[0].completion_tokens == 5);
  CHECK(c.sink->ids[{0, 1}] == std::vector{2, 3});
  CHECK(c.sink->ids[{1, 0}] == std::vector{5});
  check_all_released();
}

TEST_CASE_METHOD(stage, "one batch carries the tokens of many requests") {
  auto x = submit(), y = submit();
  auto all = asked();
  REQUIRE(all.size() == 2);
  for (const auto& r : all) {
    route(r.key, both);
    accept(r.key, both);
  }
  msg::draft<msg::TokenBatch> d;
  d->setWorker(both.name);
  d->setGeneration(both.generation);
  auto streams = d->initStreams(3);
  const job_key stranger{{1, 1}, 0, 1};
  int n = 0;
  for (const auto& key : {all[0].key, stranger, all[1].key}) {
    write(streams[n].initKey(), key);
    streams[n].initIds(1).set(0, 100 + n);
    streams[n].setFinish(stop);
    ++n;
  }
  to_hub(both.name, std::move(d));
  CHECK(x.sink->ids[{0, 0}] == std::vector{100});
  CHECK(y.sink->ids[{0, 0}] == std::vector{102});
  check_all_released();
}

TEST_CASE_METHOD(
    stage, "a long prompt goes in parts to the worker that renders it, two ahead of its credits") {
  submit({.prompt_bytes = 5 * request::part_bytes});
  auto key = asked_once().key;
  route(key, decode, &prefill);
  std::size_t received = 0;
  std::size_t parts = 0;
  const std::size_t whole = hub.gate->held_bytes();
  auto take_parts = [&] {
    std::size_t n = 0;
    for (auto& [from, e] : take_envelopes<msg::PromptPart>(prefill.actor)) {
      msg::view<msg::PromptPart> in{e};
      CHECK(in->getOffset() == received);
      received += in->getBytes().size();
      ++n;
    }
    parts += n;
    return n;
  };
  auto credit = [&](std::size_t bytes) {
    msg::draft<msg::PartCredit> d;
    write(d->initKey(), key);
    d->setReceived(static_cast<std::uint32_t>(bytes));
    to_hub(prefill.name, std::move(d));
  };
  CHECK(take_parts() == 2);
  credit(0);
  CHECK(take_parts() == 0);
  credit(request::part_bytes);
  CHECK(take_parts() == 1);
  while (received < whole) {
    const auto before = received;
    credit(received);
    take_parts();
    REQUIRE(received > before);
  }
  credit(received);
  CHECK(take_parts() == 0);
  CHECK(received == whole);
  CHECK(parts == 6);
  CHECK(take_envelopes<msg::PromptPart>(decode.actor).empty());
}

TEST_CASE_METHOD(
    stage, "leases are renewed with one message per worker and interval, for open jobs only") {
  submit(), submit(), submit();
  auto all = asked();
  route(all[0].key, both);
  route(all[1].key, decode, &prefill);
  route(all[2].key, decode, &prefill);
  accept(all[2].key, prefill);
  prefill_done(all[2].key);
  advance(1s);
  auto keys = [&](const played_worker& w) {
    auto messages = take_envelopes<msg::RenewLeases>(w.actor);
    REQUIRE(messages.size() == 1);
    CHECK(messages[0].first.to.generation == w.generation);
    msg::view<msg::RenewLeases> in{messages[0].second};
    return in->getKeys().size();
  };
  CHECK(keys(both) == 1);
  CHECK(keys(decode) == 2);
  CHECK(keys(prefill) == 1);
  CHECK(take_envelopes<msg::RenewLeases>(second.actor).empty());
  advance(3s);
  CHECK(take_envelopes<msg::RenewLeases>(both.actor).size() == 3);
}
