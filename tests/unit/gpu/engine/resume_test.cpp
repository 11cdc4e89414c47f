// Failover: an answer that another engine began goes on without a token or a byte lost, repeated or
// changed.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

/// Text and byte counts of an answer, delta by delta.
class delta_log final : public recorder {
 public:
  void on_delta(choice_delta delta) override {
    if (delta.choice == 0) deltas.push_back(delta);
    recorder::on_delta(std::move(delta));
  }
  std::vector<choice_delta> deltas;
};

/// Multi-byte characters, so that tokens end inside them.
simulated_options with_umlauts() {
  simulated_options o;
  for (const char c : std::string("abcde "))
    o.output_tokens.push_back(static_cast<unsigned char>(c));
  for (int i = 0; i < 4; ++i) {
    o.output_tokens.push_back(0xC3);
    o.output_tokens.push_back(0xA4);
  }
  return o;
}

std::vector<choice_delta> log_of(const generate_spec& spec, const simulated_options& model) {
  rig r({}, model);
  delta_log log;
  REQUIRE(r.machine->submit(spec));
  while (r.machine->step(log).worked) {
  }
  REQUIRE(log.done.contains(spec.id));
  return log.deltas;
}

}  // namespace

TEST_CASE("resume: at every index, the rest is the same ids and the same bytes") {
  const bool imports = GENERATE(false, true);
  auto spec = generate(1, prompt_of(130), 60);
  spec.how.temperature = GENERATE(0.0F, 1.3F);
  spec.how.seed = 99;
  spec.how.frequency_penalty = 0.7F;
  spec.stops = {"\xC3\xA4\xC3\xA4", "ab e"};
  const auto model = with_umlauts();
  const auto whole = log_of(spec, model);
  std::string whole_text;
  for (const auto& d : whole) whole_text += d.text;

  resumed_choice so_far;
  std::string text_so_far;
  for (std::size_t cut = 0; cut + 1 < whole.size(); ++cut) {
    if (cut > 0) {
      so_far.ids.insert(so_far.ids.end(), whole[cut - 1].ids.begin(), whole[cut - 1].ids.end());
      so_far.emitted_bytes = whole[cut - 1].emitted_bytes;
      text_so_far += whole[cut - 1].text;
    }
    CAPTURE(cut, text_so_far);
    auto again = spec;
    again.resume = {so_far};
    rig d({}, model);
    delta_log log;
    if (imports) {
      rig p({}, model);
      again.prefill_here = false;
      REQUIRE(p.machine->submit(prefill(1, spec.tokens)));
      p.machine->grant_delivery(1, 0);
      p.run();
      REQUIRE(d.machine->submit(again));
      d.machine->step(log);
      for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
    } else {
      REQUIRE(d.machine->submit(again));
    }
    while (d.machine->step(log).worked) {
    }
    REQUIRE(log.done.contains(1));
    REQUIRE(log.deltas.size() == whole.size() - cut);
    auto text = text_so_far;
    for (std::size_t i = 0; i < log.deltas.size(); ++i) {
      text += log.deltas[i].text;
      REQUIRE(log.deltas[i].ids == whole[cut + i].ids);
      REQUIRE(log.deltas[i].first_index == whole[cut + i].first_index);
      REQUIRE(log.deltas[i].emitted_bytes == whole[cut + i].emitted_bytes);
    }
    REQUIRE(text == whole_text);
    REQUIRE(log.deltas.back().why == whole.back().why);
    REQUIRE(log.deltas.back().stop_text == whole.back().stop_text);
  }
}

TEST_CASE("resume: finished choices stay finished, the others go on") {
  auto spec = generate(1, prompt_of(80), 25);
  spec.choices = 3;
  spec.how.temperature = 1;
  spec.how.seed = 3;
  rig whole;
  REQUIRE(whole.machine->submit(spec));
  whole.run();
  spec.resume.resize(3);
  const auto first = ids_of(whole, 1, 0);
  spec.resume[0] = {{first.begin(), first.begin() + 10}, 10, false};
  spec.resume[1] = {ids_of(whole, 1, 1), 25, true};
  rig r;
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.done.contains(1));
  CHECK_FALSE(r.events.answers.at(1).contains(1));
  const auto rest = ids_of(r, 1, 0);
  REQUIRE(rest.size() == first.size());
  CHECK(std::equal(rest.begin() + 10, rest.end(), first.begin() + 10));
  CHECK(ids_of(r, 1, 2) == ids_of(whole, 1, 2));
  CHECK(r.events.answers.at(1).at(0).text == whole.events.answers.at(1).at(0).text.substr(10));
}

TEST_CASE("resume: what had ended already only gets its end") {
  auto spec = generate(1, prompt_of(80), 10);
  resumed_choice earlier;
  earlier.ids = reference(spec.tokens, 10);
  earlier.emitted_bytes = 10;
  SECTION("by length") { spec.resume = {earlier}; }
  SECTION("by an end token") {
    earlier.ids[9] = 258;
    earlier.emitted_bytes = 9;
    spec.max_tokens = 50;
    spec.resume = {earlier};
  }
  rig r;
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.done.contains(1));
  CHECK(r.events.sampled.at(1) == 0);
  CHECK(r.events.answers.at(1).at(0).text.empty());
  CHECK(r.events.answers.at(1).at(0).why ==
        (earlier.ids[9] == 258 ? finish::stop : finish::length));
}

TEST_CASE("resume: text that the client lacks is given out, text that it has is not") {
  auto spec = generate(1, prompt_of(80), 20);
  resumed_choice earlier;
  earlier.ids = reference(spec.tokens, 10);
  rig whole;
  REQUIRE(whole.machine->submit(spec));
  whole.run();
  const auto text = whole.events.answers.at(1).at(0).text;
  earlier.emitted_bytes = GENERATE(4, 15);
  spec.resume = {earlier};
  rig r;
  REQUIRE(r.machine->submit(spec));
  r.run();
  CHECK(r.events.answers.at(1).at(0).text == text.substr(earlier.emitted_bytes));
}

TEST_CASE("resume: a job that knows about some of its choices only is refused") {
  auto spec = generate(1, prompt_of(10), 5);
  spec.choices = 2;
  spec.resume.resize(1);
  rig r;
  CHECK(r.machine->submit(spec).error().code == "invalid_job");
}
