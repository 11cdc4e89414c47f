#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe::engine;
using namespace troupe::engine::test;

TEST_CASE("engine: one request gets its tokens, its text and an end") {
  rig r;
  REQUIRE(r.machine->submit(generate(1, prompt_of(1300), 20)));
  r.run();
  REQUIRE(r.events.done.contains(1));
  const auto& a = r.events.answers.at(1).at(0);
  CHECK(a.ids.size() == 20);
  CHECK(a.text == r.text_of(a.ids));
  CHECK(a.why == finish::length);
  CHECK(r.events.started.at(1) == 0);
  CHECK(r.machine->gauges().kv_referenced == 0);
}

TEST_CASE("engine: a prompt of a single token works in every way") {
  rig r;
  REQUIRE(r.machine->submit(generate(1, {'x'}, 5)));
  auto many = generate(2, {'x'}, 5);
  many.choices = 3;
  REQUIRE(r.machine->submit(many));
  r.run();
  CHECK(ids_of(r, 1).size() == 5);
  for (std::uint16_t c = 0; c < 3; ++c) CHECK(ids_of(r, 2, c) == ids_of(r, 1));

  rig p;
  rig d;
  auto spec = generate(3, {'x'}, 5);
  spec.prefill_here = false;
  REQUIRE(p.machine->submit(prefill(3, {'x'})));
  REQUIRE(d.machine->submit(spec));
  hand_over(p, d, 3);
  CHECK(ids_of(d, 3) == ids_of(r, 1));
  CHECK(p.events.prefill_done.contains(3));
}

TEST_CASE("engine: further answers of a job are told while they are sampled") {
  rig r;
  auto many = generate(1, prompt_of(20), 5);
  many.choices = 3;
  REQUIRE(r.machine->submit(many));
  REQUIRE(r.machine->submit(generate(2, prompt_of(30), 5)));
  r.step();
  CHECK(r.machine->gauges().running == 2);
  CHECK(r.machine->gauges().further == 2);
  r.run();
  CHECK(r.machine->gauges().further == 0);
}

TEST_CASE("engine: chunks alone begin at multiples of step_tokens, and the last prompt token is a "
          "step of its own") {
  batching_limits limits;
  limits.step_tokens = 100;
  rig r(limits);
  REQUIRE(r.machine->submit(generate(1, prompt_of(251), 2)));
  std::vector<std::uint32_t> batches;
  while (true) {
    const auto report = r.step();
    if (!report.worked) break;
    if (report.batch > 0) batches.push_back(report.batch);
  }
  CHECK(batches == std::vector<std::uint32_t>{100, 100, 50, 1, 1});
}

TEST_CASE("engine: prefill and decode apart give the ids of one engine, piece by piece") {
  const auto prompt = prompt_of(1537);
  const auto expected = reference(prompt, 40);
  engine_options small_pieces;
  small_pieces.piece_bytes_max = 10'000;
  batching_limits limits;
  limits.kv_io_bytes_per_step = GENERATE(1U, 25'000U, 32U << 20U);
  rig p(limits, {}, small_pieces);
  rig d(limits);
  p.events.buffers_free = GENERATE(1, 1000);
  auto spec = generate(7, prompt, 40);
  spec.prefill_here = false;
  REQUIRE(p.machine->submit(prefill(7, prompt)));
  REQUIRE(d.machine->submit(spec));
  hand_over(p, d, 7);
  REQUIRE(d.events.done.contains(7));
  CHECK(d.events.adopted.contains(7));
  CHECK(p.events.prefill_done.contains(7));
  CHECK(ids_of(d, 7) == expected);
  CHECK(d.machine->gauges().prefilled == 0);

  SECTION("a second turn moves only what decode lacks") {
    auto turn = prompt;
    const auto answer = ids_of(d, 7);
    turn.insert(turn.end(), answer.begin(), answer.end());
    const auto suffix = prompt_of(100, 3);
    turn.insert(turn.end(), suffix.begin(), suffix.end());
    auto second = generate(8, turn, 10);
    second.prefill_here = false;
    REQUIRE(p.machine->submit(prefill(8, turn)));
    REQUIRE(d.machine->submit(second));
    hand_over(p, d, 8);
    CHECK(d.events.import_ready.at(8) == 1537 + 39);
    CHECK(p.events.prefill_cached.at(8) == 1536);
    CHECK(ids_of(d, 8) == reference(turn, 10));
  }
}

TEST_CASE("engine: a step moves no more KV than its budget, but always a piece") {
  batching_limits limits;
  limits.kv_io_bytes_per_step = GENERATE(100U, 30'000U);
  engine_options small_pieces;
  small_pieces.piece_bytes_max = 10'000;
  rig p(limits, {}, small_pieces);
  rig d(limits);
  auto spec = generate(1, prompt_of(1537), 1);
  spec.prefill_here = false;
  REQUIRE(p.machine->submit(prefill(1, spec.tokens)));
  REQUIRE(d.machine->submit(spec));
  p.machine->grant_delivery(1, 0);
  const auto most = std::max<std::size_t>(10'000, limits.kv_io_bytes_per_step);
  std::size_t exported = 0;
  while (!p.events.prefill_done.contains(1)) {
    const auto report = p.step();
    REQUIRE(report.exported_bytes <= most);
    exported += report.exported_bytes;
  }
  CHECK(exported >= 1536 * 64);
  d.run();
  for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
  std::size_t imported = 0;
  while (!d.events.done.contains(1)) {
    const auto report = d.step();
    REQUIRE(report.imported_bytes <= most);
    imported += report.imported_bytes;
  }
  CHECK(imported == exported);
}

TEST_CASE("engine: damaged, foreign and unasked-for KV is refused and the job fails retryably") {
  const auto prompt = prompt_of(300);
  rig p;
  rig d;
  auto spec = generate(1, prompt, 5);
  spec.prefill_here = false;
  REQUIRE(p.machine->submit(prefill(1, prompt)));
  REQUIRE(d.machine->submit(spec));
  p.machine->grant_delivery(1, 0);
  p.run();
  d.run();
  REQUIRE(p.events.pieces.size() == 1);
  auto piece = std::move(p.events.pieces.front());
  SECTION("a flipped byte") { piece.buffer->bytes()[piece.size - 3] ^= std::byte{1}; }
  SECTION("a short piece") { piece.size -= 1; }
  SECTION("a lie about the size") { piece.size += 1'000'000; }
  SECTION("another range") { piece.end -= 1; }
  SECTION("beyond the prompt") { piece.end += 5; }
  SECTION("an empty range") { piece.end = piece.begin; }
  d.machine->import_piece(std::move(piece));
  d.run();
  REQUIRE(d.events.failed.contains(1));
  CHECK(d.events.failed.at(1).why.code == "kv_import_failed");
  CHECK(d.events.failed.at(1).retryable);
  CHECK(d.machine->gauges().kv_referenced == 0);
}

TEST_CASE("engine: KV that does not continue what decode kept fails the pass, retryably") {
  rig p;
  rig d;
  REQUIRE(d.machine->submit(generate(1, prompt_of(101, 1), 1)));
  d.run();
  auto spec = generate(2, prompt_of(300, 1), 5);
  spec.prefill_here = false;
  REQUIRE(d.machine->submit(spec));
  REQUIRE(p.machine->submit(prefill(2, prompt_of(300, 2))));
  hand_over(p, d, 2);
  REQUIRE(d.events.import_ready.at(2) == 101);
  REQUIRE(d.events.failed.contains(2));
  CHECK(d.events.failed.at(2).why.code == "engine_failed");
  CHECK(d.events.failed.at(2).retryable);
  CHECK(d.machine->gauges().kv_referenced == 0);
}

TEST_CASE("engine: what can never fit is refused at once, and so is nonsense") {
  batching_limits limits;
  limits.kv_tokens = 100;
  simulated_options small;
  small.cells = 100;
  rig r(limits, small);
  CHECK(r.machine->submit(generate(1, prompt_of(100), 1)).error().code == "prompt_too_long");
  CHECK(r.machine->submit(generate(1, {}, 1)).error().code == "empty_prompt");
  CHECK(r.machine->submit(generate(1, {260}, 1)).error().code == "invalid_token");
  CHECK(r.machine->submit(generate(1, {-1}, 1)).error().code == "invalid_token");
  auto resumed = generate(1, {1}, 4);
  resumed.resume.resize(1);
  resumed.resume[0].ids = {2, 260};
  CHECK(r.machine->submit(std::move(resumed)).error().code == "invalid_token");
  CHECK(r.machine->submit(prefill(1, {})).error().code == "empty_prompt");
  CHECK(r.machine->submit(generate(1, {'a'}, 0)).error().code == "invalid_job");
  CHECK(r.machine->submit(generate(1, prompt_of(99), 1)));
  r.run();
  CHECK(r.events.done.contains(1));
  CHECK(r.machine->gauges().queued == 0);
}

TEST_CASE("engine: the submit queue has an end, and a job that leaves it makes room") {
  rig r;
  for (job_id id = 0; id < submit_queue_jobs_max; ++id)
    REQUIRE(r.machine->submit(generate(id, prompt_of(5), 1)));
  CHECK(r.machine->submit(generate(5000, prompt_of(5), 1)).error().code == "queue_full");
  CHECK(r.machine->gauges().queued == submit_queue_jobs_max);
  r.machine->cancel(3);
  r.run();
  CHECK(r.events.cancelled == std::set<job_id>{3});
  CHECK(r.events.done.size() == submit_queue_jobs_max - 1);
  CHECK(r.machine->submit(generate(5000, prompt_of(5), 1)));
}

TEST_CASE("engine: requests share the KV of what they have in common") {
  rig r;
  auto first = generate(1, prompt_of(1000), 30);
  first.chain = {11, 12};
  REQUIRE(r.machine->submit(first));
  r.run();
  CHECK(r.events.prefixes == std::multiset<std::uint64_t>{11, 12});
  auto turn = prompt_of(1000);
  const auto answer = ids_of(r, 1);
  turn.insert(turn.end(), answer.begin(), answer.begin() + 20);
  turn.push_back('?');
  auto second = generate(2, turn, 10);
  second.chain = {11, 12, 13};
  REQUIRE(r.machine->submit(second));
  REQUIRE(r.machine->submit(generate(3, prompt_of(1000), 10)));
  r.run();
  CHECK(r.events.started.at(2) == 1020);
  CHECK(r.events.started.at(3) == 999);
  CHECK(ids_of(r, 2) == reference(turn, 10));
  CHECK(r.events.prefixes == std::multiset<std::uint64_t>{11, 12, 13});
}

TEST_CASE("engine: KV is shared within a scope only, also that of who still runs") {
  rig r;
  const auto of = [](job_id id, std::uint64_t scope) {
    auto spec = generate(id, prompt_of(500), 20);
    spec.prefix_scope = scope;
    return spec;
  };
  REQUIRE(r.machine->submit(of(1, 7)));
  for (int i = 0; i < 5; ++i) r.step();
  REQUIRE(r.events.done.empty());  // it runs, with all of its prompt
  REQUIRE(r.machine->submit(of(2, 8)));
  REQUIRE(r.machine->submit(of(3, 7)));
  r.run();
  CHECK(r.events.started.at(2) == 0);
  CHECK(r.events.started.at(3) == 499);
  // And what they have left.
  REQUIRE(r.machine->submit(of(4, 0)));
  REQUIRE(r.machine->submit(of(5, 8)));
  r.run();
  CHECK(r.events.started.at(4) == 0);
  CHECK(r.events.started.at(5) == 499);
  // Of prefill workers, too.
  for (const job_id id : {job_id{6}, job_id{7}}) {
    prefill_spec spec;
    spec.id = id;
    spec.tokens = prompt_of(500);
    spec.prefix_scope = id == 6 ? 9 : 7;
    REQUIRE(r.machine->submit(spec));
    r.machine->grant_delivery(id, 0);
  }
  r.run();
  CHECK(r.events.prefill_cached.at(6) == 0);
  CHECK(r.events.prefill_cached.at(7) == 499);
}

TEST_CASE("engine: without prefix reuse nothing is kept") {
  batching_limits limits;
  limits.prefix_reuse = false;
  rig r(limits);
  REQUIRE(r.machine->submit(generate(1, prompt_of(100), 3)));
  r.run();
  CHECK(r.machine->audit().engine_cells == 0);
}

TEST_CASE("engine: every choice has its own draws, and the same seed the same ones") {
  const auto sampled = [](std::uint64_t seed) {
    rig r;
    auto spec = generate(1, prompt_of(600), 40);
    spec.choices = 4;
    spec.how.temperature = 1.5F;
    spec.how.seed = seed;
    REQUIRE(r.machine->submit(spec));
    r.run();
    std::vector<std::vector<token_id>> out;
    for (std::uint16_t c = 0; c < 4; ++c) out.push_back(ids_of(r, 1, c));
    return out;
  };
  const auto a = sampled(5);
  CHECK(a == sampled(5));
  CHECK(a != sampled(6));
  CHECK(a[0] != a[1]);
  CHECK(a[2] != a[3]);
}

TEST_CASE("engine: more choices than slots take turns") {
  simulated_options few;
  few.slots = GENERATE(1, 2, 3);
  rig r({}, few);
  auto spec = generate(1, prompt_of(50), 20);
  spec.choices = 5;
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.done.contains(1));
  const auto expected = reference(prompt_of(50), 20);
  for (std::uint16_t c = 0; c < 5; ++c) CHECK(ids_of(r, 1, c) == expected);
}

TEST_CASE("engine: a token counts as soon as it is sampled: many that take long together are no "
          "standstill") {
  struct counting : recorder {
    troupe::engine::engine* machine = nullptr;
    std::vector<std::uint64_t> seen;
    void on_delta(choice_delta delta) override {
      recorder::on_delta(std::move(delta));
      seen.push_back(machine->gauges().sampled);
    }
  } events;
  rig r;
  events.machine = r.machine.get();
  for (unsigned i = 1; i <= 5; ++i) REQUIRE(r.machine->submit(generate(i, prompt_of(10, i), 3)));
  while (r.machine->step(events).worked) {
  }
  REQUIRE(events.seen.size() == 15);
  for (std::size_t i = 0; i < events.seen.size(); ++i) CHECK(events.seen[i] == i + 1);
  CHECK(r.machine->gauges().sampled == 15);
}
