// A probe has a place of its own: whatever the load, it is computed next, and it is in no counter
// of the others.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe;
using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

batching_limits crowded() {
  batching_limits limits;
  limits.slots = 4;
  limits.kv_tokens = 200;
  limits.step_tokens = 8;
  limits.cached_prefixes = 2;
  limits.probe_cells = probe_cells_needed;
  return limits;
}

simulated_options sequences(slot_id slots) {
  simulated_options how;
  how.slots = slots;
  how.cells = 200 + probe_cells_needed;
  return how;
}

generate_spec probe(job_id id, std::size_t tokens = 2) {
  auto spec = generate(id, prompt_of(tokens), 1);
  spec.probe = true;
  spec.priority = 255;
  return spec;
}

/// Steps until the probe has its token.
int steps_to_answer(rig& r, job_id id) {
  REQUIRE(r.machine->submit(probe(id)));
  int steps = 0;
  while (!r.events.done.contains(id)) {
    REQUIRE(++steps < 100);
    r.step();
  }
  return steps;
}

}  // namespace

TEST_CASE("a probe is answered within its own two passes, however full the engine is") {
  rig r{crowded(), sequences(8)};
  job_id next = 1;
  for (int i = 0; i < 40; ++i) {  // far more than fits, prompts that fill all cells, and choices
    auto spec = generate(
        next++, prompt_of(60 + static_cast<std::size_t>(i % 3) * 60, static_cast<unsigned>(i)), 60);
    spec.choices = i % 2 == 0 ? 4 : 1;
    REQUIRE(r.machine->submit(std::move(spec)));
  }
  for (int i = 0; i < 30; ++i) {
    for (int s = 0; s < i % 5; ++s) r.step();
    CHECK(steps_to_answer(r, 1'000 + static_cast<job_id>(i)) <= 2);
  }
  r.run();
  for (job_id id = 1; id < next; ++id) CHECK(r.events.done.contains(id));
}

TEST_CASE("a probe takes nothing from others: the answers and what they reuse are the same") {
  rig with{crowded(), sequences(8)}, without{crowded(), sequences(8)};
  for (job_id id = 1; id <= 6; ++id)
    for (auto* r : {&with, &without})
      REQUIRE(r->machine->submit(generate(id, prompt_of(50, static_cast<unsigned>(id)), 30)));
  for (job_id id = 0; with.step().worked; ++id)
    if (id % 7 == 0) (void)with.machine->submit(probe(100 + id));
  with.run();
  without.run();
  for (job_id id = 1; id <= 6; ++id) CHECK(ids_of(with, id) == ids_of(without, id));
  const auto a = with.machine->gauges(), b = without.machine->gauges();
  CHECK(a.sampled == b.sampled);
  CHECK(a.prefilled == b.prefilled);
  CHECK(a.kv_total == b.kv_total);
  CHECK(a.kv_cached == b.kv_cached);
  CHECK(a.probes > 10);
  CHECK(b.probes == 0);
  CHECK(a.running == 0);
}

TEST_CASE("a job may still have all the cells that the cluster file gives it") {
  auto limits = crowded();
  rig r{limits, sequences(8)};
  REQUIRE(r.machine->submit(generate(1, prompt_of(limits.kv_tokens - 20), 20)));
  r.step();
  CHECK(steps_to_answer(r, 2) <= 2);
  r.run();
  CHECK(ids_of(r, 1).size() == 20);
  CHECK_FALSE(r.machine->submit(generate(3, prompt_of(limits.kv_tokens), 1)));
}

TEST_CASE("a probe that runs is no running job, and an idle engine that was probed holds nothing") {
  rig r{crowded(), sequences(8)};
  REQUIRE(r.machine->submit(probe(1, 12)));
  r.step();
  CHECK_FALSE(r.events.done.contains(1));
  auto g = r.machine->gauges();
  CHECK(g.running == 0);
  CHECK(g.queued == 0);
  CHECK(g.queued_tokens == 0);
  r.run();
  g = r.machine->gauges();
  CHECK(g.probes == 1);
  CHECK(g.kv_referenced == 0);
  CHECK(g.kv_cached == 0);
  CHECK(r.events.prefixes.empty());
}

TEST_CASE("one probe at a time, and no request in the guise of one") {
  rig r{crowded(), sequences(8)};
  REQUIRE(r.machine->submit(probe(1)));
  const auto second = r.machine->submit(probe(2));
  REQUIRE_FALSE(second);
  CHECK(second.error().code == "probe_pending");
  r.run();
  REQUIRE(r.machine->submit(probe(3)));
  r.run();
  CHECK_FALSE(r.machine->submit(probe(4, probe_cells_needed)));
  auto longer = probe(5);
  longer.max_tokens = 2;
  CHECK_FALSE(r.machine->submit(longer));
  auto wide = probe(6);
  wide.choices = 2;
  CHECK_FALSE(r.machine->submit(wide));
}

TEST_CASE("a probe finds its place where all that wait are refused already") {
  auto limits = crowded();
  limits.slots = 1;
  rig r{limits, sequences(4)};
  job_id id = 1;
  while (r.machine->submit(generate(id, prompt_of(30), 20))) ++id;
  CHECK(id > submit_queue_jobs_max);
  CHECK(steps_to_answer(r, 1'000'000) <= 2);
}

TEST_CASE("jobs that must run alone do not hold a probe up") {
  rig r{crowded(), sequences(8)};
  for (job_id id = 1; id <= 3; ++id) {
    auto spec = generate(id, prompt_of(40, static_cast<unsigned>(id)), 40);
    spec.alone = true;
    REQUIRE(r.machine->submit(std::move(spec)));
  }
  r.step();
  CHECK(steps_to_answer(r, 100) <= 2);
}

TEST_CASE("a cancelled probe gives its place back") {
  rig r{crowded(), sequences(8)};
  REQUIRE(r.machine->submit(probe(1)));
  r.machine->cancel(1);
  r.run();
  CHECK(r.events.cancelled.contains(1));
  CHECK(steps_to_answer(r, 2) <= 2);
}
