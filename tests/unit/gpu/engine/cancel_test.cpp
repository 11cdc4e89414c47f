// A cancel in every phase of a job, also in the middle of a forward pass.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe::engine;
using namespace troupe::engine::test;
using namespace std::chrono_literals;

namespace {

void expect_gone(rig& r, job_id id) {
  r.run();
  CHECK(r.events.cancelled.contains(id));
  CHECK(r.machine->gauges().kv_referenced == 0);
  CHECK(r.machine->gauges().running == 0);
  CHECK(r.machine->gauges().queued == 0);
  r.machine->cancel(id);  // a second one is nothing
  r.run();
}

/// Time that passes only when the simulated model computes.
struct fake_time {
  std::chrono::steady_clock::time_point now{};
  std::function<void()> each_slice;
  simulated_options model() {
    simulated_options o;
    o.prefill_tokens_per_second = 1000;
    o.decode_step_us = 10'000;
    o.now = [this] { return now; };
    o.sleep = [this](std::chrono::nanoseconds t) {
      now += t;
      if (each_slice) each_slice();
    };
    return o;
  }
};

}  // namespace

TEST_CASE("cancel: while the job waits") {
  batching_limits one;
  one.slots = 1;
  rig r(one);
  REQUIRE(r.machine->submit(generate(1, prompt_of(50), 100)));
  REQUIRE(r.machine->submit(generate(2, prompt_of(50), 100)));
  r.step();
  r.machine->cancel(2);
  r.step();
  CHECK(r.events.cancelled.contains(2));
  r.machine->cancel(1);
  expect_gone(r, 1);
}

TEST_CASE("cancel: before the submit was even taken in") {
  rig r;
  REQUIRE(r.machine->submit(generate(1, prompt_of(50), 100)));
  r.machine->cancel(1);
  expect_gone(r, 1);
  CHECK(r.events.started.empty());
}

TEST_CASE("cancel: between chunks of a prefill, and while decoding") {
  rig r;
  REQUIRE(r.machine->submit(generate(1, prompt_of(2000), 100)));
  for (int steps = GENERATE(1, 2, 4, 6, 50); steps > 0; --steps) r.step();
  r.machine->cancel(1);
  expect_gone(r, 1);
  CHECK(r.machine->audit().engine_cells == 0);
}

TEST_CASE("cancel: several choices") {
  rig r;
  auto spec = generate(1, prompt_of(100), 100);
  spec.choices = 4;
  REQUIRE(r.machine->submit(spec));
  for (int i = 0; i < 10; ++i) r.step();
  r.machine->cancel(1);
  expect_gone(r, 1);
  CHECK(r.machine->audit().engine_cells == 0);
}

TEST_CASE("cancel: a prefill job before and after its grant, with and without buffers") {
  engine_options small;
  small.piece_bytes_max = 5000;
  rig r({}, {}, small);
  r.events.buffers_free = GENERATE(0, 2, 1000);
  const bool grant = GENERATE(false, true);
  REQUIRE(r.machine->submit(prefill(1, prompt_of(1500))));
  r.step();
  if (grant) r.machine->grant_delivery(1, 0);
  r.step();
  r.machine->cancel(1);
  expect_gone(r, 1);
}

TEST_CASE(
    "cancel: a decode job that waits for imports, with some of them in; later pieces are dropped") {
  engine_options small;
  small.piece_bytes_max = 5000;
  rig p({}, {}, small);
  rig d;
  auto spec = generate(1, prompt_of(300), 10);
  spec.prefill_here = false;
  REQUIRE(p.machine->submit(prefill(1, prompt_of(300))));
  REQUIRE(d.machine->submit(spec));
  p.machine->grant_delivery(1, 0);
  p.run();
  d.run();
  REQUIRE(p.events.pieces.size() > 2);
  const auto before = p.events.buffers_free;
  d.machine->import_piece(std::move(p.events.pieces[1]));
  d.run();
  d.machine->cancel(1);
  d.machine->import_piece(std::move(p.events.pieces[0]));
  expect_gone(d, 1);
  CHECK(d.machine->audit().engine_cells == 0);
  CHECK(p.events.buffers_free == before + 2);  // both buffers went back
}

TEST_CASE(
    "cancel: interrupts a pass that is mostly the cancelled job's, and the others lose nothing") {
  fake_time time;
  rig r({}, time.model());
  REQUIRE(r.machine->submit(generate(1, prompt_of(40, 1), 30)));
  for (int i = 0; i < 5; ++i) r.step();
  REQUIRE(r.machine->submit(generate(2, prompt_of(2000, 2), 30)));
  r.step();
  const auto start = time.now;
  time.each_slice = [&, done = false]() mutable {
    if (!done) r.machine->cancel(2);
    done = true;
  };
  r.step();  // 511 tokens of job 2: half a second, were it not interrupted
  CHECK(time.now - start < 5ms);
  r.run();
  CHECK(r.events.cancelled == std::set<job_id>{2});
  CHECK(ids_of(r, 1) == reference(prompt_of(40, 1), 30));
}

TEST_CASE("cancel: doesn't interrupt a pass that is mostly another job's") {
  fake_time time;
  rig r({}, time.model());
  REQUIRE(r.machine->submit(generate(1, prompt_of(40, 1), 30)));
  for (int i = 0; i < 5; ++i) r.step();
  REQUIRE(r.machine->submit(generate(2, prompt_of(2000, 2), 30)));
  r.step();
  const auto prefilled = r.machine->gauges().prefilled;
  time.each_slice = [&, done = false]() mutable {
    if (!done) r.machine->cancel(1);
    done = true;
  };
  r.step();
  CHECK(r.machine->gauges().prefilled == prefilled + 511);
  time.each_slice = nullptr;
  r.run();
  CHECK(ids_of(r, 2) == reference(prompt_of(2000, 2), 30));
}

TEST_CASE("cancel: an abort that comes late only repeats a pass") {
  fake_time time;
  rig r({}, time.model());
  REQUIRE(r.machine->submit(generate(1, prompt_of(1000), 30)));
  for (int i = 0; i < 20; ++i) {
    r.runner->request_abort();
    r.step();
    r.step();
  }
  r.run();
  CHECK(ids_of(r, 1) == reference(prompt_of(1000), 30));
}
