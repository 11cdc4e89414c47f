// An answer with everything that has a memory (a grammar, a stop string, seeded draws, two choices)
// that breaks off after each of its tokens and goes on in another engine: with a model whose answer
// is a function of the prefix, the same ids and bytes; with llama.cpp, which rounds differently
// after a recompute, an answer without a gap that the grammar allows.

#include "gpu/engine/llama/llama_runner.hpp"
#include "tests/unit/gpu/engine/engine_fixture.hpp"
#include "tests/unit/gpu/text/gguf/text_fixture.hpp"

#include <array>

using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

constexpr std::uint32_t answer_tokens = 64;
constexpr const char* schema =
    R"({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "string"}]}, "minItems": 60})";

enum class kind { simulated, llama };

struct text_rig {
  explicit text_rig(kind k) : text(troupe::text::testing::load()) {
    batching_limits limits;
    limits.kv_tokens = 2'048;
    if (k == kind::llama) {
      llama_options o;
      o.path = TROUPE_TINY_GGUF;
      o.cells = limits.kv_tokens;
      o.slots = 12;
      o.threads = 1;
      auto loaded = llama_runner::load(o);
      if (!loaded) FAIL(loaded.error().message);
      machine = make_batching_engine(std::move(*loaded), text, limits, {});
    } else {
      simulated_options o;
      o.cells = limits.kv_tokens;
      o.vocabulary = text->vocabulary();
      o.output_tokens = readable_tokens(*text);
      machine = make_batching_engine(std::make_unique<simulated_runner>(o), text, limits, {});
    }
  }
  void run(const generate_spec& spec) {
    REQUIRE(machine->submit(spec));
    while (machine->step(events).worked) {
    }
    REQUIRE(events.done.contains(spec.id));
    CHECK(machine->gauges().kv_referenced == 0);
  }

  std::shared_ptr<const troupe::text::text_model> text;
  recorder events;
  std::unique_ptr<engine> machine;
};

generate_spec wish(const troupe::text::text_model& text, std::uint64_t seed) {
  troupe::text::testing::request r;
  r.root.getPrompt().setText("a list, please");
  r.root.getResponseFormat().setJsonSchema(schema);
  auto rendered = troupe::text::testing::rendered(text, r);
  REQUIRE_FALSE(rendered.plan.grammar.empty());
  auto spec = generate(1, std::move(rendered.tokens), answer_tokens);
  spec.plan = std::move(rendered.plan);
  spec.choices = 2;
  spec.how.temperature = 1;
  spec.how.seed = seed;
  spec.stops = {"4,", "e, "};
  return spec;
}

/// Both choices whole, as one engine gave them.
using answer = std::array<received, 2>;
answer answer_of(kind k, const generate_spec& spec) {
  text_rig r{k};
  r.run(spec);
  return {r.events.answers.at(1).at(0), r.events.answers.at(1).at(1)};
}

/// What a client has of a choice after its first `tokens`: how many bytes, where nothing is held
/// back that could become a stop string.
std::string text_after(const troupe::text::text_model& text, const generate_spec& spec,
                       const std::vector<token_id>& ids, std::size_t tokens) {
  auto output = text.make_output(spec.plan, spec.stops);
  std::string got;
  for (std::size_t i = 0; i < tokens; ++i) got += output->push(ids[i]).text;
  return got;
}

/// Whether the grammar lets all of it be written.
bool allowed(const troupe::text::text_model& text, const generate_spec& spec,
             const std::vector<token_id>& ids) {
  auto limits = text.make_constraint(spec.plan);
  REQUIRE(limits);
  return std::all_of(ids.begin(), ids.end(), [&](token_id id) {
    const bool may = (*limits)->allows(id);
    if (may) (*limits)->accept(id);
    return may;
  });
}

}  // namespace

TEST_CASE("failover: at every token, with grammar, choices, stop strings and draws") {
  const auto k = GENERATE(kind::simulated, kind::llama);
  CAPTURE(k == kind::llama);
  const auto text = troupe::text::testing::load();
  // One choice that runs to its full length, one that a stop string ends well into it: the first
  // seed that gives such a pair.
  std::uint64_t seed = 1;
  answer whole;
  const auto fits = [&] {
    const bool first = whole[0].why == finish::length;
    const auto& full = whole[first ? 0 : 1];
    const auto& cut = whole[first ? 1 : 0];
    return full.why == finish::length && full.ids.size() == answer_tokens &&
           cut.why == finish::stop && cut.ids.size() > answer_tokens / 3;
  };
  for (; seed < 400; ++seed) {
    whole = answer_of(k, wish(*text, seed));
    if (fits()) break;
  }
  CAPTURE(seed);
  REQUIRE(fits());
  const auto spec = wish(*text, seed);
  for (std::size_t cut = 0; cut < answer_tokens; ++cut) {
    CAPTURE(cut);
    auto again = spec;
    std::array<std::string, 2> before;
    for (std::size_t c = 0; c < 2; ++c) {
      const auto have = std::min(cut, whole[c].ids.size());
      resumed_choice earlier;
      earlier.ids.assign(whole[c].ids.begin(),
                         whole[c].ids.begin() + static_cast<std::ptrdiff_t>(have));
      earlier.done = have == whole[c].ids.size();
      before[c] = earlier.done ? whole[c].text : text_after(*text, spec, whole[c].ids, have);
      earlier.emitted_bytes = static_cast<std::uint32_t>(before[c].size());
      again.resume.push_back(std::move(earlier));
    }
    text_rig r{k};
    r.run(again);
    for (std::uint16_t c = 0; c < 2; ++c) {
      CAPTURE(c);
      if (again.resume[c].done) {
        CHECK(!r.events.answers[1].contains(c));
        continue;
      }
      const auto& rest = r.events.answers.at(1).at(c);
      auto ids = again.resume[c].ids;
      REQUIRE(rest.ids.size() > ids.size());  // placeholders of the earlier ones, then the rest
      ids.insert(ids.end(), rest.ids.begin() + static_cast<std::ptrdiff_t>(ids.size()),
                 rest.ids.end());
      if (k == kind::simulated) {
        CHECK(ids == whole[c].ids);
        CHECK(before[c] + rest.text == whole[c].text);
        CHECK(rest.why == whole[c].why);
      } else {
        CHECK(allowed(*text, spec, ids));
        CHECK((rest.why == finish::stop || ids.size() == answer_tokens));
        std::string straight =
            troupe::text::testing::stream(*text, spec.plan, ids, spec.stops).text;
        CHECK(before[c] + rest.text == straight);
      }
    }
  }
}
