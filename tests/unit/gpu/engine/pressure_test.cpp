// Short of KV: everybody finishes with the right answer, whatever had to give way in between.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include <random>

using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

batching_limits room_for(std::uint32_t tokens, std::uint32_t slots = 16) {
  batching_limits limits;
  limits.kv_tokens = tokens;
  limits.slots = slots;
  limits.step_tokens = 128;
  return limits;
}

simulated_options cells(std::uint32_t count) {
  simulated_options o;
  o.cells = count;
  return o;
}

}  // namespace

TEST_CASE("pressure: KV for 4 requests, 16 that outgrow their prediction, all finish") {
  constexpr std::uint32_t answer = 700;  // predicted: 256
  const auto kv = 4 * (100 + answer);
  rig r(room_for(kv), cells(kv));
  for (job_id id = 0; id < 16; ++id)
    REQUIRE(r.machine->submit(generate(id, prompt_of(100, static_cast<unsigned>(id)), answer)));
  r.run();
  CHECK(r.events.done.size() == 16);
  for (job_id id = 0; id < 16; ++id)
    CHECK(ids_of(r, id) == reference(prompt_of(100, static_cast<unsigned>(id)), answer));
  CHECK(r.machine->gauges().kv_referenced == 0);
}

TEST_CASE("pressure: the same when the prompts came from elsewhere and may not be computed here") {
  constexpr std::uint32_t answer = 500;
  const auto kv = 4 * (100 + answer);
  rig p;
  rig d(room_for(kv), cells(kv));
  for (job_id id = 0; id < 16; ++id) {
    REQUIRE(p.machine->submit(prefill(id, prompt_of(100, static_cast<unsigned>(id)))));
    auto spec = generate(id, prompt_of(100, static_cast<unsigned>(id)), answer);
    spec.prefill_here = false;
    REQUIRE(d.machine->submit(spec));
  }
  std::set<job_id> granted;
  for (int round = 0; round < 100'000 && d.events.done.size() + d.events.failed.size() < 16;
       ++round) {
    p.step();
    d.step();
    for (const auto& [id, keep] : d.events.import_ready)
      if (granted.insert(id).second) p.machine->grant_delivery(id, keep);
    for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
    p.events.pieces.clear();
  }
  for (const auto& [id, failure] : d.events.failed) FAIL_CHECK(id << ": " << failure.why.code);
  CHECK(d.events.done.size() == 16);
  for (const auto id : d.events.done)
    CHECK(ids_of(d, id) == reference(prompt_of(100, static_cast<unsigned>(id)), answer));
}

TEST_CASE(
    "pressure: without memory to park in, a job from elsewhere fails retryably and says why") {
  engine_options nowhere;
  nowhere.parked_kv_bytes_max = 0;
  rig p;
  rig d(room_for(900), cells(900), nowhere);
  for (job_id id = 1; id <= 2; ++id) {
    REQUIRE(p.machine->submit(prefill(id, prompt_of(100, static_cast<unsigned>(id)))));
    auto spec = generate(id, prompt_of(100, static_cast<unsigned>(id)), 600);
    spec.prefill_here = false;
    REQUIRE(d.machine->submit(spec));
    p.machine->grant_delivery(id, 0);
  }
  p.run();
  d.run();
  for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
  d.run();
  CHECK(d.events.done == std::set<job_id>{1});
  REQUIRE(d.events.failed.contains(2));
  CHECK(d.events.failed.at(2).why.code == "kv_exhausted");
  CHECK(d.events.failed.at(2).retryable);
}

TEST_CASE("pressure: choices of a lone request wait for one another rather than fail") {
  rig r(room_for(700), cells(700));
  auto spec = generate(1, prompt_of(100), 500);
  spec.choices = 4;
  spec.how.temperature = 1.2F;
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.done.contains(1));
  rig roomy;
  REQUIRE(roomy.machine->submit(spec));
  roomy.run();
  for (std::uint16_t c = 0; c < 4; ++c) CHECK(ids_of(r, 1, c) == ids_of(roomy, 1, c));
}

TEST_CASE("pressure: an answer longer than the whole KV ends by length") {
  rig r(room_for(200), cells(200));
  REQUIRE(r.machine->submit(generate(1, prompt_of(100), 5000)));
  r.run();
  REQUIRE(r.events.done.contains(1));
  CHECK(r.events.answers.at(1).at(0).why == finish::length);
  CHECK(ids_of(r, 1).size() == 101);
}

TEST_CASE("pressure: a resumed answer that this engine cannot hold goes elsewhere") {
  rig r(room_for(200), cells(200));
  auto spec = generate(1, prompt_of(100), 5000);
  spec.resume.resize(1);
  spec.resume[0].ids = reference(prompt_of(100), 150);
  spec.resume[0].emitted_bytes = 150;
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.failed.contains(1));
  CHECK(r.events.failed.at(1).why.code == "kv_exhausted");
  CHECK(r.events.failed.at(1).retryable);
}

TEST_CASE("pressure: higher priority takes room from lower, and both finish") {
  rig r(room_for(900), cells(900));
  REQUIRE(r.machine->submit(generate(1, prompt_of(100, 1), 600)));
  for (int i = 0; i < 50; ++i) r.step();
  auto urgent = generate(2, prompt_of(100, 2), 600);
  urgent.priority = 9;
  REQUIRE(r.machine->submit(urgent));
  job_id first_done = 0;
  while (r.step().worked)
    if (first_done == 0 && !r.events.done.empty()) first_done = *r.events.done.begin();
  CHECK(r.events.done.size() == 2);
  CHECK(first_done == 2);
  CHECK(ids_of(r, 1) == reference(prompt_of(100, 1), 600));
}

TEST_CASE(
    "pressure: prefill jobs that wait for a grant never block those that decode has granted") {
  // Decode takes them in the opposite order; with one slot each, both would wait for ever if a
  // computed job kept its place.
  rig p(room_for(1000, 1), cells(1000));
  rig d(room_for(1000, 1), cells(1000));
  for (job_id id = 1; id <= 3; ++id) {
    REQUIRE(p.machine->submit(prefill(id, prompt_of(300, static_cast<unsigned>(id)))));
    auto spec = generate(4 - id, prompt_of(300, static_cast<unsigned>(4 - id)), 10);
    spec.prefill_here = false;
    REQUIRE(d.machine->submit(spec));
  }
  std::set<job_id> granted;
  for (int round = 0; round < 1000 && d.events.done.size() < 3; ++round) {
    p.step();
    d.step();
    for (const auto& [id, keep] : d.events.import_ready)
      if (granted.insert(id).second) p.machine->grant_delivery(id, keep);
    for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
    p.events.pieces.clear();
  }
  REQUIRE(d.events.done.size() == 3);
  for (job_id id = 1; id <= 3; ++id)
    CHECK(ids_of(d, id) == reference(prompt_of(300, static_cast<unsigned>(id)), 10));
  p.run();
  CHECK(p.machine->gauges().prefilled == 3 * 299);  // the cache kept what was set aside
}

TEST_CASE("pressure: higher priority need not wait for a slot, and who made room finishes later") {
  rig r(room_for(4000, 2), cells(4000));
  for (job_id id = 1; id <= 4; ++id)
    REQUIRE(r.machine->submit(generate(id, prompt_of(100, static_cast<unsigned>(id)), 200)));
  for (int i = 0; i < 50; ++i) r.step();
  auto probe = generate(5, prompt_of(100, 5), 2);
  probe.priority = 9;
  REQUIRE(r.machine->submit(probe));
  for (int i = 0; i < 4; ++i) r.step();
  CHECK(r.events.done == std::set<job_id>{5});
  r.run();
  CHECK(r.events.done.size() == 5);
  for (job_id id = 1; id <= 4; ++id)
    CHECK(ids_of(r, id) == reference(prompt_of(100, static_cast<unsigned>(id)), 200));
}

TEST_CASE("pressure: an answer that goes on does not wait behind new prompts") {
  rig r(room_for(4000, 1), cells(4000));
  for (job_id id = 1; id <= 3; ++id)
    REQUIRE(r.machine->submit(generate(id, prompt_of(100, static_cast<unsigned>(id)), 30)));
  r.step();
  auto moved = generate(4, prompt_of(100, 4), 30);
  const auto whole = reference(moved.tokens, 30);
  moved.resume = {{{whole.begin(), whole.begin() + 10}, 0, false}};
  REQUIRE(r.machine->submit(moved));
  std::vector<job_id> order;
  while (r.step().worked)
    for (const auto id : r.events.done)
      if (std::find(order.begin(), order.end(), id) == order.end()) order.push_back(id);
  CHECK(order == std::vector<job_id>{1, 4, 2, 3});  // the one that runs already keeps its slot
}

TEST_CASE("pressure: nor does the prompt of one that prefill computes again") {
  rig p(room_for(1000, 1), cells(1000));
  for (job_id id = 1; id <= 2; ++id)
    REQUIRE(p.machine->submit(prefill(id, prompt_of(300, static_cast<unsigned>(id)))));
  p.step();
  auto moved = prefill(3, prompt_of(300, 3));
  moved.resumed = true;
  REQUIRE(p.machine->submit(moved));
  for (job_id id = 1; id <= 3; ++id) p.machine->grant_delivery(id, 0);
  std::vector<job_id> order;
  for (int i = 0; i < 100; ++i) {
    p.step();
    for (const auto& piece : p.events.pieces)
      if (order.empty() || order.back() != piece.job) order.push_back(piece.job);
    p.events.pieces.clear();
  }
  CHECK(order == std::vector<job_id>{1, 3, 2});
}

TEST_CASE("pressure: answers never grow into cells that an admitted prompt was promised") {
  rig p;
  rig d(room_for(700), cells(700));
  REQUIRE(d.machine->submit(generate(1, prompt_of(100, 1), 550)));
  for (int i = 0; i < 20; ++i) d.step();
  auto urgent = generate(2, prompt_of(300, 2), 20);
  urgent.prefill_here = false;
  urgent.priority = 9;
  REQUIRE(p.machine->submit(prefill(2, urgent.tokens)));
  REQUIRE(d.machine->submit(urgent));
  p.machine->grant_delivery(2, 0);
  p.run();
  for (int i = 0; i < 1000; ++i)
    d.step();  // the KV takes its time; the answer has none left to grow into
  REQUIRE(d.events.import_ready.contains(2));
  REQUIRE_FALSE(d.events.done.contains(1));
  for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
  d.run();
  CHECK(d.events.done == std::set<job_id>{1, 2});
  CHECK(ids_of(d, 2) == reference(urgent.tokens, 20));
  CHECK(ids_of(d, 1) == reference(prompt_of(100, 1), 550));
}

TEST_CASE("pressure: a model without ranges moves whole sequences only, and everybody finishes") {
  auto model = cells(600);
  model.ranges = false;
  model.slots = GENERATE(2, 20);
  rig r(room_for(600), model);
  for (job_id id = 0; id < 6; ++id) {
    auto spec = generate(id, prompt_of(50, static_cast<unsigned>(id)), 200);
    spec.choices = id % 2 == 0 ? 3 : 1;
    REQUIRE(r.machine->submit(spec));
  }
  r.run();
  CHECK(r.events.done.size() == 6);
  CHECK(r.runner->forbidden_moves() == 0);
  for (job_id id = 0; id < 6; ++id) {
    const auto expected = reference(prompt_of(50, static_cast<unsigned>(id)), 200);
    for (const std::uint16_t c : {0, 1, 2})
      if (c == 0 || id % 2 == 0) CHECK(ids_of(r, id, c) == expected);
  }
  CHECK(r.machine->submit(prefill(9, prompt_of(50))).error().code == "kv_not_transferable");
  auto imported = generate(9, prompt_of(50), 1);
  imported.prefill_here = false;
  CHECK(r.machine->submit(imported).error().code == "kv_not_transferable");
}

TEST_CASE(
    "pressure: random jobs, cancels and sizes; books balance after every step, answers are right") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (int round = 0; round < 12; ++round) {
    auto limits = room_for(300 + upto(900), 1 + upto(12));
    limits.step_tokens = 1 + upto(200);
    limits.cached_prefixes = upto(6);
    limits.kv_io_bytes_per_step = 1 + upto(100'000);
    auto model = cells(limits.kv_tokens);
    model.slots = static_cast<slot_id>(2 + upto(20));
    engine_options options;
    options.piece_bytes_max = 200 + upto(20'000);
    options.parked_kv_bytes_max = upto(2) * 1'000'000;
    rig r(limits, model, options);
    auto narrow = room_for(300 + upto(600), 1 + upto(5));
    narrow.cached_prefixes = upto(6);
    rig p(narrow, cells(narrow.kv_tokens), options);
    std::map<job_id, generate_spec> jobs;
    std::set<job_id> granted;
    // Prefills of this engine for others: some are granted, at any time, the rest never.
    std::map<job_id, position> sizes;
    std::map<job_id, position> delivered;
    job_id next = 1;
    int idle = 0;
    while (idle < 2) {
      if (next < 60 && upto(8) == 0) {
        const auto id = 1000 + sizes.size();
        const auto tokens = 1 + upto(250);
        REQUIRE(r.machine->submit(prefill(id, prompt_of(tokens, upto(4)))));
        sizes.emplace(id, tokens);
      }
      if (!sizes.empty() && next < 60 && upto(10) == 0) {
        const auto id = 1000 + upto(static_cast<unsigned>(sizes.size()));
        const auto from = upto(sizes.at(id));
        if (delivered.emplace(id, from).second) r.machine->grant_delivery(id, from);
      }
      if (next < 60 && upto(3) == 0) {
        auto spec = generate(next++, prompt_of(1 + upto(250), upto(4)), 1 + upto(150));
        spec.choices = static_cast<std::uint16_t>(1 + (upto(4) == 0 ? upto(4) : 0));
        spec.priority = static_cast<std::uint8_t>(upto(3));
        spec.prefill_here = upto(3) != 0;
        spec.chain = {upto(6), 100 + upto(6)};
        if (!spec.prefill_here) REQUIRE(p.machine->submit(prefill(spec.id, spec.tokens)));
        REQUIRE(r.machine->submit(spec));
        jobs.emplace(spec.id, spec);
      }
      if (next > 1 && upto(25) == 0) {
        const auto id = 1 + upto(static_cast<unsigned>(next - 1));
        r.machine->cancel(id);
        p.machine->cancel(id);
      }
      if (upto(20) == 0) r.runner->request_abort();
      const bool worked = r.step().worked;
      const bool prefilled = p.step().worked;
      for (const auto& [id, keep] : r.events.import_ready)
        if (granted.insert(id).second) p.machine->grant_delivery(id, keep);
      const bool moved = !p.events.pieces.empty();
      for (auto& piece : p.events.pieces) r.machine->import_piece(std::move(piece));
      p.events.pieces.clear();
      for (const auto& piece : r.events.pieces) {
        REQUIRE(piece.begin == delivered.at(piece.job));
        delivered[piece.job] = piece.end;
      }
      r.events.pieces.clear();
      idle = worked || prefilled || moved || next < 60 ? 0 : idle + 1;
    }
    for (const auto& [id, size] : sizes) {
      CAPTURE(round, id);
      REQUIRE(r.events.prefill_done.contains(id) == delivered.contains(id));
      if (delivered.contains(id)) REQUIRE(delivered.at(id) == size - 1);
      r.machine->cancel(id);
    }
    r.run();
    for (const auto& [id, spec] : jobs) {
      CAPTURE(round, id);
      if (r.events.cancelled.contains(id)) continue;
      if (r.events.failed.contains(id)) {
        REQUIRE(r.events.failed.at(id).retryable);
        REQUIRE_FALSE(spec.prefill_here);  // what may be computed here never fails for want of KV
        continue;
      }
      REQUIRE(r.events.done.contains(id));
      rig alone({}, {});
      REQUIRE(alone.machine->submit(generate(id, spec.tokens, spec.max_tokens)));
      alone.run();
      for (std::uint16_t c = 0; c < spec.choices; ++c) {
        const auto ids = ids_of(r, id, c);
        const auto expected = ids_of(alone, id);
        REQUIRE(ids.size() <= expected.size());
        REQUIRE(std::equal(ids.begin(), ids.end(), expected.begin()));
        if (ids.size() < expected.size())
          REQUIRE(spec.tokens.size() + ids.size() > limits.kv_tokens);
      }
    }
    REQUIRE(r.machine->gauges().kv_referenced == 0);
    REQUIRE(r.machine->gauges().running == 0);
    REQUIRE(r.machine->gauges().queued == 0);
  }
}
