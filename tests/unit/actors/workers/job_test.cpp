#include "actors/workers/job.hpp"

#include <capnp/message.h>
#include <catch2/catch.hpp>

#include <string>

using namespace troupe;
using namespace troupe::workers;

namespace {

struct announced {
  capnp::MallocMessageBuilder builder;
  msg::Content::Builder content = builder.initRoot<msg::Content>();
  announced(std::uint32_t bytes, std::size_t inline_bytes) {
    content.setBytes(bytes);
    if (inline_bytes > 0) {
      auto data = content.initInline(static_cast<unsigned>(inline_bytes));
      for (std::size_t i = 0; i < inline_bytes; ++i) data[i] = static_cast<kj::byte>(i);
    }
  }
};

std::vector<kj::byte> some_bytes(std::size_t n) { return std::vector<kj::byte>(n, kj::byte{7}); }

kj::ArrayPtr<const kj::byte> ptr(const std::vector<kj::byte>& v) { return {v.data(), v.size()}; }

struct wish {
  capnp::MallocMessageBuilder builder;
  msg::Completion::Builder c = builder.initRoot<msg::Completion>();
  explicit wish(std::uint32_t max_tokens) {
    c.setMaxTokens(max_tokens);
    c.getPrompt().setText("x");
  }
};

}  // namespace

TEST_CASE("content at once") {
  announced a{64, 64};
  auto c = content_assembly::begin(a.content.asReader(), 1'000);
  REQUIRE(c);
  CHECK(c->complete());
  auto words = c->take();
  CHECK(words.asBytes()[63] == 63);
}

TEST_CASE("content in parts, in order and complete only with the last") {
  announced a{64, 0};
  auto c = content_assembly::begin(a.content.asReader(), 1'000);
  REQUIRE(c);
  const auto half = some_bytes(32);
  CHECK(c->add(0, ptr(half)));
  CHECK_FALSE(c->complete());
  CHECK(c->received() == 32);
  CHECK(c->add(32, ptr(half)));
  CHECK(c->complete());
}

TEST_CASE("content with a gap, a repetition or too much is malformed") {
  announced a{64, 0};
  auto c = content_assembly::begin(a.content.asReader(), 1'000);
  REQUIRE(c);
  CHECK(c->add(0, ptr(some_bytes(16))));
  for (const std::uint32_t at : {0U, 8U, 24U, 4'000'000'000U}) {
    auto added = c->add(at, ptr(some_bytes(8)));
    REQUIRE_FALSE(added);
    CHECK(added.error().code == "content_malformed");
  }
  CHECK_FALSE(c->add(16, ptr(some_bytes(49))));
  CHECK(c->received() == 16);
}

TEST_CASE("content of no, odd or too many bytes is refused before it is allocated") {
  for (const std::uint32_t bytes : {0U, 7U, 1'008U, 0xfffffff8U}) {
    announced a{bytes, 0};
    CHECK_FALSE(content_assembly::begin(a.content.asReader(), 1'000));
  }
  announced more{16, 24};
  CHECK_FALSE(content_assembly::begin(more.content.asReader(), 1'000));
}

TEST_CASE("prompt and answer have to fit the context, and the error names what does not") {
  CHECK(check_context(wish{0}.c.asReader(), 99, 100));
  CHECK(check_context(wish{1}.c.asReader(), 99, 100));
  auto long_answer = check_context(wish{2}.c.asReader(), 99, 100);
  REQUIRE_FALSE(long_answer);
  CHECK(long_answer.error().code == "context_length_exceeded");
  CHECK(long_answer.error().parameter == "max_tokens");
  auto long_prompt = check_context(wish{0}.c.asReader(), 100, 100);
  REQUIRE_FALSE(long_prompt);
  CHECK(long_prompt.error().parameter == "prompt");
  CHECK_FALSE(check_context(wish{0xffffffffU}.c.asReader(), 1, 100));
  wish chat{0};
  chat.c.getPrompt().initMessages(1);
  CHECK(check_context(chat.c.asReader(), 500, 100).error().parameter == "messages");
}

TEST_CASE("what is asked for reaches the engine") {
  wish w{5};
  w.c.setChoices(3);
  w.c.setLogprobs(true);
  w.c.setTopLogprobs(4);
  w.c.setIgnoreEos(true);
  w.c.initStop(2).set(0, "END");
  w.c.getStop().set(1, "a\nb");
  auto s = w.c.initSampling();
  s.setTemperature(0.5F);
  s.setTopP(0.9F);
  s.setTopK(40);
  s.setMinP(0.1F);
  s.setSeed(123'456'789'012ULL);
  s.setPresencePenalty(0.25F);
  s.setFrequencyPenalty(-1.5F);
  auto bias = s.initLogitBias(1);
  bias[0].setToken(17);
  bias[0].setBias(-100);
  engine::output_plan plan;
  plan.grammar = "root ::= \"x\"";
  auto spec = make_generate_spec(w.c.asReader(), {1, 2, 3}, plan, 100);
  REQUIRE(spec);
  CHECK(spec->tokens == std::vector<engine::token_id>{1, 2, 3});
  CHECK(spec->choices == 3);
  CHECK(spec->max_tokens == 5);
  CHECK(spec->stops == std::vector<std::string>{"END", "a\nb"});
  CHECK(spec->logprobs);
  CHECK(spec->top_logprobs == 4);
  CHECK(spec->ignore_end);
  CHECK(spec->plan.grammar == plan.grammar);
  CHECK(spec->how.temperature == 0.5F);
  CHECK(spec->how.top_p == 0.9F);
  CHECK(spec->how.top_k == 40);
  CHECK(spec->how.min_p == 0.1F);
  CHECK(spec->how.seed == 123'456'789'012ULL);
  CHECK(spec->how.presence_penalty == 0.25F);
  CHECK(spec->how.frequency_penalty == -1.5F);
  CHECK(spec->how.logit_bias == std::vector<std::pair<engine::token_id, float>>{{17, -100.0F}});
  // No limit of its own: as many as the context holds.
  CHECK(make_generate_spec(wish{0}.c.asReader(), {1, 2, 3}, {}, 100)->max_tokens == 97);
}

TEST_CASE("what a client has already is read back") {
  capnp::MallocMessageBuilder b;
  auto choices = b.initRoot<msg::Resume>().initChoices(2);
  auto ids = choices[0].initIds(2);
  ids.set(0, 5);
  ids.set(1, 6);
  choices[0].setEmittedBytes(9);
  choices[1].setDone(true);
  const auto all = read_resume(b.getRoot<msg::Resume>().asReader());
  REQUIRE(all.size() == 2);
  CHECK(all[0].ids == std::vector<engine::token_id>{5, 6});
  CHECK(all[0].emitted_bytes == 9);
  CHECK_FALSE(all[0].done);
  CHECK(all[1].done);
}
