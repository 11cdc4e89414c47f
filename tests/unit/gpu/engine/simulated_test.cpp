#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include "gpu/engine/simulated/simulated_kv.hpp"

using namespace troupe::engine;
using namespace troupe::engine::test;
using namespace std::chrono_literals;

TEST_CASE("simulated: its time is that of its model, in slices that show progress") {
  std::chrono::steady_clock::time_point now{};
  simulated_options o;
  o.prefill_tokens_per_second = 1000;
  o.decode_step_us = 5000;
  o.decode_us_per_stream = 500;
  o.now = [&] { return now; };
  o.sleep = [&](std::chrono::nanoseconds t) { now += t; };
  rig r({}, o);
  REQUIRE(r.machine->submit(generate(1, prompt_of(401), 10)));
  REQUIRE(r.machine->submit(generate(2, prompt_of(401, 1), 10)));
  r.step();
  CHECK(now.time_since_epoch() == 512ms);
  CHECK(r.machine->gauges().ticks >= 512);
  const auto start = now;
  r.step();  // the first decode token of job 1, and the rest of job 2's prompt
  CHECK(now - start == 5'500us + 288ms);
}

TEST_CASE("simulated: faults come by their seed") {
  simulated_options o;
  o.fault_probability_per_step = 0.3;
  const auto faulty_steps = [&](std::uint64_t seed) {
    o.seed = seed;
    simulated_runner r(o);
    std::vector<position> hit;
    for (position p = 0; p < 60; ++p) {
      const std::vector<batch_token> batch{{0, 'a', p, true}};
      REQUIRE(r.forward(batch) == forward_status::done);
      if (r.shortcut_token(0) < 0) hit.push_back(p);
    }
    return hit;
  };
  o.fault = simulated_fault::garbage;
  CHECK(faulty_steps(1) == faulty_steps(1));
  CHECK(faulty_steps(1) != faulty_steps(2));
  CHECK(faulty_steps(1).size() > 5);
  o.fault = simulated_fault::none;
  CHECK(faulty_steps(1).empty());

  o.fault = simulated_fault::crash;
  o.fault_probability_per_step = 1;
  int crashes = 0;
  o.crash = [&] { ++crashes; };
  simulated_runner r(o);
  const std::vector<batch_token> batch{{0, 'a', 0, true}};
  r.forward(batch);
  CHECK(crashes == 1);
  CHECK(parse_fault("melt").error().code == "unknown_fault");
  CHECK(*parse_fault("hang") == simulated_fault::hang);
}

TEST_CASE("simulated: garbage ends the job retryably, and nothing of it reaches the client or the "
          "cache") {
  simulated_options o;
  o.fault = simulated_fault::garbage;
  o.fault_probability_per_step = 0.2;
  rig r({}, o);
  REQUIRE(r.machine->submit(generate(1, prompt_of(50), 500)));
  r.run();
  REQUIRE(r.events.failed.contains(1));
  CHECK(r.events.failed.at(1).why.code == "garbage_output");
  CHECK(r.events.failed.at(1).retryable);
  CHECK(r.machine->audit().engine_cells == 0);
}

TEST_CASE("simulated: the shortcut is what the logits say") {
  simulated_options o;
  simulated_runner r(o);
  for (position p = 0; p < 50; ++p) {
    const std::vector<batch_token> batch{{0, static_cast<token_id>('a' + p), p, true}};
    REQUIRE(r.forward(batch) == forward_status::done);
    const auto logits = r.logits(0);
    CHECK(std::max_element(logits.begin(), logits.end()) - logits.begin() == r.shortcut_token(0));
  }
}

TEST_CASE("simulated: computing on missing or foreign KV fails") {
  simulated_runner r({});
  const auto forward = [&](slot_id slot, token_id token, position pos) {
    const std::vector<batch_token> batch{{slot, token, pos, true}};
    return r.forward(batch);
  };
  REQUIRE(forward(0, 'a', 0) == forward_status::done);
  CHECK(forward(0, 'a', 0) == forward_status::failed);  // twice
  CHECK(forward(0, 'b', 2) == forward_status::failed);  // a hole
  REQUIRE(forward(0, 'b', 1) == forward_status::done);
  REQUIRE(forward(1, 'x', 0) == forward_status::done);
  r.kv_copy(0, 1, 1, 2);
  CHECK(forward(1, 'c', 2) == forward_status::failed);  // "b" after "a" is not "b" after "x"
  CHECK(r.truth().used_cells == 3);
}

TEST_CASE("simulated: an answer ends by itself when asked to, unless the job ignores ends") {
  simulated_options o;
  o.mean_answer_tokens = 20;
  rig r({}, o);
  REQUIRE(r.machine->submit(generate(1, prompt_of(50), 5000)));
  r.run();
  const auto& a = r.events.answers.at(1).at(0);
  CHECK(a.why == finish::stop);
  CHECK(a.ids.back() == 258);
  CHECK(a.text.size() == a.ids.size() - 1);
  auto endless = generate(2, prompt_of(50), 400);
  endless.ignore_end = true;
  REQUIRE(r.machine->submit(endless));
  r.run();
  CHECK(r.events.answers.at(2).at(0).ids.size() == 400);
  CHECK(r.events.answers.at(2).at(0).why == finish::length);
}

TEST_CASE("simulated: readable tokens are printable and never end an answer") {
  const auto model = troupe::text::make_byte_text_model(100);
  const auto tokens = readable_tokens(*model);
  CHECK(tokens.size() > 80);
  for (const auto t : tokens) CHECK((t >= 0x20 && t < 0x7F));
}
