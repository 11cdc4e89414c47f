// Jobs under suspicion run in passes of their own, and the engine says what it works at.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe;
using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

/// Notes what the engine says it works at.
class observer : public recorder {
 public:
  std::vector<std::set<job_id>> said;
  void on_work(std::span<const job_id> jobs) override {
    if (jobs.size() > 1 || (jobs.size() == 1 && (said.empty() || said.back() != std::set{jobs[0]})))
      said.emplace_back(jobs.begin(), jobs.end());
  }
};

struct watched {
  observer events;
  rig r;
  explicit watched(batching_limits limits = {}, simulated_options simulated = {})
      : r(limits, std::move(simulated)) {}
  bool step() {
    const auto worked = r.machine->step(events).worked;
    REQUIRE(r.machine->audit().mismatches.empty());
    return worked;
  }
  void run(int steps_max = 10'000) {
    while (step()) REQUIRE(steps_max-- > 0);
  }
  std::vector<token_id> ids(job_id id) { return events.answers.at(id).at(0).ids; }
};

generate_spec alone(generate_spec spec) {
  spec.alone = true;
  return spec;
}

}  // namespace

TEST_CASE("the engine says what a pass is for before it computes it, and whose token it samples") {
  watched w;
  REQUIRE(w.r.machine->submit(generate(1, prompt_of(20), 3)));
  REQUIRE(w.r.machine->submit(generate(2, prompt_of(20, 5), 3)));
  w.step();
  REQUIRE_FALSE(w.events.said.empty());
  CHECK(w.events.said[0] == std::set<job_id>{1, 2});
  const auto said_before = w.events.said.size();
  w.step();
  REQUIRE(w.events.said.size() == said_before + 3);
  CHECK(w.events.said[said_before] == std::set<job_id>{1, 2});
  CHECK(w.events.said[said_before + 1].size() == 1);  // sampling, one by one
  CHECK(w.events.said[said_before + 2].size() == 1);
}

TEST_CASE("a job that must be alone shares no pass with others until it has proved harmless, and "
          "all answers are what they would be") {
  batching_limits limits;
  limits.step_tokens = 16;
  watched w{limits};
  const auto tokens = alone_passes + 20;
  for (job_id id = 1; id <= 3; ++id)
    REQUIRE(w.r.machine->submit(generate(id, prompt_of(60, static_cast<unsigned>(id)), tokens)));
  w.step();
  REQUIRE(w.r.machine->submit(alone(generate(9, prompt_of(50, 9), tokens))));
  bool together = false;
  std::size_t own_at_least = 0;
  while (w.step()) {
    const auto& answers = w.events.answers;
    const auto sampled = answers.contains(9) ? answers.at(9).at(0).ids.size() : 0;
    for (const auto& set : w.events.said) {
      if (set.size() < 2 || !set.contains(9)) continue;
      together = true;
      own_at_least = std::min<std::size_t>(own_at_least == 0 ? sampled : own_at_least, sampled);
    }
  }
  CHECK(together);
  CHECK(own_at_least >= alone_passes);
  CHECK(w.ids(9) == reference(prompt_of(50, 9), tokens));
  for (job_id id = 1; id <= 3; ++id)
    CHECK(w.ids(id) == reference(prompt_of(60, static_cast<unsigned>(id)), tokens));
}

TEST_CASE("others are held up for no more than a pass by jobs that must be alone") {
  watched w;
  REQUIRE(w.r.machine->submit(generate(1, prompt_of(20), 100)));
  w.step();
  w.step();
  for (job_id id = 2; id <= 4; ++id)
    REQUIRE(
        w.r.machine->submit(alone(generate(id, prompt_of(30, static_cast<unsigned>(id)), 100))));
  auto before = w.ids(1).size();
  int without = 0;
  for (int i = 0; i < 20; ++i) {
    w.step();
    const auto now = w.ids(1).size();
    without = now == before ? without + 1 : 0;
    CHECK(without <= 1);
    before = now;
  }
  w.run();
  CHECK(w.events.done.size() == 4);
}

TEST_CASE("several that must be alone take turns") {
  watched w;
  for (job_id id = 1; id <= 3; ++id)
    REQUIRE(w.r.machine->submit(alone(generate(id, prompt_of(30, static_cast<unsigned>(id)), 6))));
  for (int i = 0; i < 9; ++i) w.step();
  for (job_id id = 1; id <= 3; ++id) CHECK(w.ids(id).size() == 2);
  for (const auto& set : w.events.said) CHECK(set.size() == 1);
  w.run();
  CHECK(w.events.done.size() == 3);
}

TEST_CASE("an engine whose turn is that of a job which lacks room does not fall asleep") {
  batching_limits limits;
  limits.slots = 4;
  limits.kv_tokens = 64;
  limits.cached_prefixes = 2;
  watched w{limits};
  REQUIRE(w.r.machine->submit(generate(1, prompt_of(20), 30)));
  REQUIRE(w.r.machine->submit(alone(generate(2, prompt_of(20, 3), 30))));
  w.run();
  CHECK(w.events.done.size() == 2);
}

TEST_CASE("a prompt under suspicion is computed for another engine in passes of its own") {
  watched p;
  rig d;
  auto spec = prefill(1, prompt_of(100));
  spec.alone = true;
  REQUIRE(p.r.machine->submit(std::move(spec)));
  REQUIRE(p.r.machine->submit(prefill(2, prompt_of(100, 4))));
  p.run();
  for (const auto& set : p.events.said) CHECK(set.size() == 1);
  for (job_id id : {1, 2}) p.r.machine->grant_delivery(id, 0);
  p.run();
  CHECK(p.events.prefill_done == std::set<job_id>{1, 2});
}

TEST_CASE("a simulated engine crashes on the text it was told to, wherever the prompt is cut") {
  for (position step_tokens : {1U, 3U, 7U, 64U}) {
    int crashes = 0;
    simulated_options how;
    how.crash_on = {'k', 'i', 'l', 'l'};
    how.crash = [&] { ++crashes; };
    batching_limits limits;
    limits.slots = 1;
    limits.step_tokens = step_tokens;
    watched w{limits, how};
    const std::string harmless = "a kiln is ill", poison = "do kill it";
    REQUIRE(w.r.machine->submit(generate(1, {harmless.begin(), harmless.end()}, 2)));
    w.run();
    CHECK(crashes == 0);
    REQUIRE(w.r.machine->submit(generate(2, {poison.begin(), poison.end()}, 2)));
    w.run();
    CHECK(crashes == 1);
  }
}
