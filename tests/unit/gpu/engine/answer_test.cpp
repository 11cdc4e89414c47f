// Constraints, tool calls, log probabilities and ends, with a text side that is made for it.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

using namespace troupe;
using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

/// Letters that may come next depend on how many came: those of `pattern`, over and over.
class pattern_constraint final : public text::constraint {
 public:
  explicit pattern_constraint(std::string pattern) : pattern_(std::move(pattern)) {}
  bool allows(token_id token) override {
    return at_ == pattern_.size() ? token == 258
                                  : token == pattern_[at_] || token == pattern_[at_] - 32;
  }
  void mask(std::span<std::pair<token_id, float>> candidates) override {
    for (auto& [id, logit] : candidates)
      if (!allows(id)) logit = -std::numeric_limits<float>::infinity();
  }
  void accept(token_id token) override {
    REQUIRE(allows(token));
    ++at_;
  }

 private:
  std::string pattern_;
  std::size_t at_ = 0;
};

/// Everything after the first 'e' is the arguments of a tool call.
class tool_output final : public text::output_stream {
 public:
  text::text_delta push(token_id token) override {
    text::text_delta out;
    const std::string piece(1, static_cast<char>(token));
    if (called_) {
      out.tool_calls.push_back({0, {}, {}, piece});
    } else if (piece == "e") {
      called_ = true;
      out.tool_calls.push_back({0, "call_1", "find", {}});
    } else {
      out.text = piece;
      bytes_ += 1;
    }
    out.has_tool_calls = called_;
    return out;
  }
  text::text_delta finish() override {
    text::text_delta out;
    out.has_tool_calls = called_;
    return out;
  }
  std::uint32_t emitted_bytes() const override { return bytes_; }

 private:
  bool called_ = false;
  std::uint32_t bytes_ = 0;
};

/// The byte model, where a plan's grammar is a pattern, and a parser the tool calls above.
class odd_model final : public text::text_model {
 public:
  expected<text::rendered_prompt> render(msg::Completion::Reader r,
                                         const text::still_wanted& wanted) const override {
    return bytes_->render(r, wanted);
  }
  expected<std::vector<token_id>> tokenize(std::string_view t, bool a, bool b) const override {
    return bytes_->tokenize(t, a, b);
  }
  std::string piece(token_id token) const override { return bytes_->piece(token); }
  bool is_end(token_id token) const override { return bytes_->is_end(token); }
  std::uint32_t vocabulary() const override { return bytes_->vocabulary(); }
  expected<std::unique_ptr<text::constraint>> make_constraint(
      const output_plan& plan) const override {
    if (plan.grammar == "impossible") return error{"invalid_schema", "no", "response_format"};
    if (plan.grammar.empty()) return std::unique_ptr<text::constraint>();
    return std::unique_ptr<text::constraint>(std::make_unique<pattern_constraint>(plan.grammar));
  }
  std::unique_ptr<text::output_stream> make_output(
      const output_plan& plan, std::span<const std::string> stops) const override {
    if (!plan.parser_json.empty()) return std::make_unique<tool_output>();
    return bytes_->make_output(plan, stops);
  }

 private:
  std::shared_ptr<const text::text_model> bytes_ = text::make_byte_text_model(8192);
};

struct odd_rig {
  explicit odd_rig(simulated_options model = {}) {
    model.end_tokens = {258, 259};
    machine = make_batching_engine(std::make_unique<simulated_runner>(model),
                                   std::make_shared<odd_model>(), {});
  }
  void run() {
    while (machine->step(events).worked) {
    }
  }
  recorder events;
  std::unique_ptr<troupe::engine::engine> machine;
};

}  // namespace

TEST_CASE("answer: a constraint holds for every choice, greedy and sampled, and ends the answer") {
  odd_rig r;
  auto spec = generate(1, prompt_of(50), 100);
  spec.plan.grammar = "hello world";
  spec.choices = 2;
  spec.how.temperature = GENERATE(0.0F, 1.0F);
  spec.how.seed = 4;
  REQUIRE(r.machine->submit(spec));
  r.run();
  for (std::uint16_t c = 0; c < 2; ++c) {
    const auto& a = r.events.answers.at(1).at(c);
    CHECK(a.text.size() == 11);
    CHECK(a.why == finish::stop);
    CHECK(a.ids.back() == 258);
  }
}

TEST_CASE("answer: a constraint goes on where an earlier attempt left it") {
  odd_rig r;
  auto spec = generate(1, prompt_of(50), 100);
  spec.plan.grammar = "hello world";
  spec.resume.resize(1);
  spec.resume[0].ids = {'h', 'e', 'l'};
  spec.resume[0].emitted_bytes = 3;
  REQUIRE(r.machine->submit(spec));
  r.run();
  CHECK(r.events.answers.at(1).at(0).text.size() == 8);
  CHECK(r.events.answers.at(1).at(0).why == finish::stop);
}

TEST_CASE("answer: what cannot be constrained is refused, and its place in the queue given back") {
  odd_rig r;
  auto spec = generate(1, prompt_of(50), 100);
  spec.plan.grammar = "impossible";
  CHECK(r.machine->submit(spec).error().code == "invalid_schema");
  CHECK(r.machine->gauges().queued == 0);
}

TEST_CASE(
    "answer: a constraint without a way on fails the job, and not for another worker to try") {
  odd_rig r;
  auto spec = generate(1, prompt_of(50), 100);
  spec.plan.grammar = "\x01";
  spec.how.logit_bias = {};
  spec.ignore_end = true;  // after one token only an end would be allowed
  REQUIRE(r.machine->submit(spec));
  r.run();
  REQUIRE(r.events.failed.contains(1));
  CHECK(r.events.failed.at(1).why.code == "constraint_dead_end");
  CHECK_FALSE(r.events.failed.at(1).retryable);
}

TEST_CASE(
    "answer: an answer that ends by itself with tool calls says so; one that is cut says length") {
  simulated_options model;
  model.mean_answer_tokens = 30;
  odd_rig r(model);
  auto spec = generate(1, prompt_of(50, 1), 1000);
  spec.plan.parser_json = "{}";
  REQUIRE(r.machine->submit(spec));
  spec.id = 2;
  r.run();
  const auto whole = r.events.answers.at(1).at(0);
  REQUIRE(whole.text.size() + 3 <
          whole.ids.size());  // else it has no 'e', and another prompt is needed
  CHECK(whole.why == finish::tool_calls);
  spec.max_tokens = static_cast<std::uint32_t>(whole.ids.size() - 1);
  REQUIRE(r.machine->submit(spec));
  r.run();
  CHECK(r.events.answers.at(2).at(0).why == finish::length);
  CHECK(r.events.answers.at(2).at(0).text == whole.text);
}

TEST_CASE("answer: log probabilities come with each token, and sum to less than one") {
  rig r;
  auto spec = generate(1, prompt_of(50), 12);
  spec.logprobs = true;
  spec.top_logprobs = 5;
  REQUIRE(r.machine->submit(spec));
  r.run();
  const auto& a = r.events.answers.at(1).at(0);
  REQUIRE(a.logprobs.size() == a.ids.size());
  for (std::size_t i = 0; i < a.ids.size(); ++i) {
    CHECK(a.logprobs[i].chosen.id == a.ids[i]);
    CHECK(a.logprobs[i].chosen.bytes == r.text->piece(a.ids[i]));
    REQUIRE(a.logprobs[i].top.size() == 5);
    CHECK(a.logprobs[i].top[0].id == a.ids[i]);
    double sum = 0;
    for (const auto& t : a.logprobs[i].top) sum += std::exp(t.logprob);
    CHECK(sum < 1.0001);
    CHECK(sum > 0.5);
  }
}

TEST_CASE(
    "answer: a stop string is cut off, wherever tokens end, and what follows is never sampled") {
  rig whole;
  REQUIRE(whole.machine->submit(generate(1, prompt_of(50), 60)));
  whole.run();
  const auto text = whole.events.answers.at(1).at(0).text;
  for (std::size_t at = 0; at + 4 <= 20; ++at) {
    const auto stop = text.substr(at, 4);
    rig r;
    auto spec = generate(1, prompt_of(50), 60);
    spec.stops = {stop, "never"};
    REQUIRE(r.machine->submit(spec));
    r.run();
    const auto& a = r.events.answers.at(1).at(0);
    const auto found = text.find(stop);
    CHECK(a.text == text.substr(0, found));
    CHECK(a.why == finish::stop);
    CHECK(a.stop_text == stop);
    CHECK(a.ids.size() == found + 4);
  }
}

TEST_CASE("answer: max_tokens counts over all attempts, and the context ends an answer too") {
  simulated_options small;
  small.context_tokens = 60;
  rig r({}, small);
  REQUIRE(r.machine->submit(generate(1, prompt_of(50), 1000)));
  r.run();
  CHECK(r.events.answers.at(1).at(0).ids.size() == 10);
  CHECK(r.events.answers.at(1).at(0).why == finish::length);
}
