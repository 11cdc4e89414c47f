// A stream leaves its engine in the middle and goes on in another, with its KV.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

generate_spec stream(std::uint32_t max_tokens = 40) {
  auto spec = generate(1, prompt_of(130), max_tokens);
  spec.how.temperature = 1.3F;
  spec.how.seed = 99;
  spec.how.frequency_penalty = 0.7F;
  return spec;
}

std::vector<token_id> whole_answer(const generate_spec& spec) {
  rig r;
  REQUIRE(r.machine->submit(spec));
  r.run();
  return ids_of(r, 1);
}

/// The stream has sampled `tokens` and been told to leave.
void run_until_leaving(rig& r, std::size_t tokens) {
  while (!r.events.answers.contains(1) || ids_of(r, 1).size() < tokens) r.step();
  r.machine->leave(1);
  r.step();
}

/// What the other engine is asked for.
generate_spec moved(const rig& from, generate_spec spec) {
  spec.prefill_here = false;
  spec.resumed_kv = true;
  spec.resume = {{ids_of(from, 1), 0, false}};
  return spec;
}

}  // namespace

TEST_CASE("move: at every index the answer goes on, and nothing is computed twice") {
  const auto spec = stream();
  const auto whole = whole_answer(spec);
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    CAPTURE(cut);
    rig from, to;
    REQUIRE(from.machine->submit(spec));
    run_until_leaving(from, cut);
    REQUIRE(from.events.leaving.contains(1));
    const auto& [tokens, answer] = from.events.leaving.at(1);
    REQUIRE(answer == cut);
    REQUIRE(tokens.size() == spec.tokens.size() + cut);
    REQUIRE(std::equal(spec.tokens.begin(), spec.tokens.end(), tokens.begin()));
    REQUIRE(std::equal(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut),
                       tokens.begin() + static_cast<std::ptrdiff_t>(spec.tokens.size())));
    const auto before = from.machine->gauges();
    REQUIRE(to.machine->submit(moved(from, spec)));
    hand_over(from, to, 1);
    REQUIRE(to.events.done.contains(1));
    auto both = ids_of(from, 1);
    const auto rest = ids_of(to, 1);
    REQUIRE(std::equal(rest.begin() + static_cast<std::ptrdiff_t>(cut), rest.end(),
                       whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end()));
    REQUIRE(to.machine->gauges().prefilled == 0);
    REQUIRE(from.machine->gauges().prefilled == before.prefilled);
    REQUIRE(from.machine->gauges().sampled + to.machine->gauges().sampled == whole.size());
    REQUIRE(from.events.prefill_cached.at(1) == tokens.size() - 1);
    REQUIRE(from.machine->gauges().kv_referenced == 0);
    REQUIRE(to.machine->gauges().kv_referenced == 0);
  }
}

TEST_CASE("move: again and again, from engine to engine") {
  const auto spec = stream();
  const auto whole = whole_answer(spec);
  std::vector<std::unique_ptr<rig>> rigs;
  rigs.push_back(std::make_unique<rig>());
  REQUIRE(rigs.back()->machine->submit(spec));
  for (const std::size_t cut : {3U, 4U, 20U}) {
    auto& from = *rigs.back();
    run_until_leaving(from, cut);
    REQUIRE(from.events.leaving.at(1).second == cut);
    auto& to = *rigs.emplace_back(std::make_unique<rig>());
    auto next = moved(from, spec);
    next.resume[0].ids.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
    REQUIRE(to.machine->submit(std::move(next)));
    bool granted = false;
    while (!to.events.answers.contains(1)) {
      from.step();
      to.step();
      if (!granted && to.events.import_ready.contains(1)) {
        from.machine->grant_delivery(1, to.events.import_ready[1]);
        granted = true;
      }
      for (auto& piece : from.events.pieces) to.machine->import_piece(std::move(piece));
      from.events.pieces.clear();
    }
    CHECK(to.machine->gauges().prefilled == 0);
  }
  rigs.back()->run();
  CHECK(std::equal(whole.begin() + 20, whole.end(), ids_of(*rigs.back(), 1).begin() + 20));
  CHECK(rigs.back()->events.done.contains(1));
}

TEST_CASE("move: what cannot leave stays, and goes on") {
  rig r;
  SECTION("several choices") {
    auto spec = stream();
    spec.choices = 2;
    REQUIRE(r.machine->submit(spec));
    run_until_leaving(r, 5);
  }
  SECTION("its own KV is still on its way") {
    auto spec = stream();
    spec.prefill_here = false;
    REQUIRE(r.machine->submit(spec));
    r.step();
    r.machine->leave(1);
    r.step();
  }
  SECTION("not admitted yet") {
    batching_limits one;
    one.slots = 1;
    rig full(one);
    REQUIRE(full.machine->submit(generate(7, prompt_of(20), 1'000)));
    full.step();
    REQUIRE(full.machine->submit(stream()));
    full.machine->leave(1);
    full.step();
    CHECK(full.events.stays.contains(1));
    return;
  }
  REQUIRE(r.events.stays.contains(1));
  CHECK(r.events.stays.at(1).code == "cannot_move");
  CHECK(r.events.leaving.empty());
  CHECK_FALSE(r.events.ended(1));
}

TEST_CASE("move: a stream that has ended, or a prefill job, is not asked") {
  rig r;
  REQUIRE(r.machine->submit(stream(3)));
  r.run();
  r.machine->leave(1);
  REQUIRE(r.machine->submit(prefill(2, prompt_of(60))));
  r.step();
  r.machine->leave(2);
  r.step();
  CHECK(r.events.leaving.empty());
  CHECK_FALSE(r.events.stays.contains(1));
  CHECK(r.events.stays.contains(2));
}

TEST_CASE("move: a stream that is cancelled while it leaves gives all back") {
  rig r;
  REQUIRE(r.machine->submit(stream()));
  run_until_leaving(r, 5);
  r.machine->cancel(1);
  r.run();
  CHECK(r.events.cancelled.contains(1));
  CHECK(r.machine->gauges().kv_referenced == 0);
}

TEST_CASE("move: one that leaves before its prompt is computed has the rest computed here") {
  const auto spec = stream();
  const auto whole = whole_answer(spec);
  batching_limits small;
  small.step_tokens = 32;
  rig from(small), to;
  REQUIRE(from.machine->submit(spec));
  from.step();
  from.machine->leave(1);
  from.step();
  REQUIRE(from.events.leaving.at(1).second == 0);
  auto next = spec;
  next.prefill_here = false;
  REQUIRE(to.machine->submit(next));
  hand_over(from, to, 1);
  CHECK(ids_of(to, 1) == whole);
  CHECK(to.machine->gauges().prefilled == 0);
}

TEST_CASE("move: a moved stream that is pre-empted comes back from its parked KV") {
  const auto spec = stream();
  const auto whole = whole_answer(spec);
  rig from;
  batching_limits tight;
  tight.slots = 1;
  rig to(tight);
  REQUIRE(from.machine->submit(spec));
  run_until_leaving(from, 10);
  REQUIRE(to.machine->submit(moved(from, spec)));
  bool granted = false;
  while (!to.events.answers.contains(1)) {
    from.step();
    to.step();
    if (!granted && to.events.import_ready.contains(1)) {
      from.machine->grant_delivery(1, to.events.import_ready[1]);
      granted = true;
    }
    for (auto& piece : from.events.pieces) to.machine->import_piece(std::move(piece));
    from.events.pieces.clear();
  }
  auto urgent = generate(2, prompt_of(40, 5), 10);
  urgent.priority = 9;
  REQUIRE(to.machine->submit(urgent));
  to.run();
  REQUIRE(to.events.done.contains(1));
  REQUIRE(to.events.done.contains(2));
  CHECK(std::equal(whole.begin() + 10, whole.end(), ids_of(to, 1).begin() + 10));
}

TEST_CASE("move: what is asked for must make sense") {
  rig r;
  auto spec = stream();
  spec.resumed_kv = true;
  spec.resume = {{{5, 6}, 0, false}};
  CHECK_FALSE(r.machine->submit(spec));  // it would be computed here
  spec.prefill_here = false;
  spec.resume.clear();
  CHECK_FALSE(r.machine->submit(spec));
  spec.resume = {{{5, 6}, 0, false}, {{7}, 0, false}};
  spec.choices = 2;
  CHECK_FALSE(r.machine->submit(spec));
}
