// The bytes that clients get.

#include "actors/gateway/openai/chain.hpp"
#include "actors/gateway/openai/chunk_encoder.hpp"
#include "actors/gateway/openai/whole_answer.hpp"

#include <capnp/message.h>
#include <catch2/catch.hpp>

#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::gateway::openai;

namespace {

answer_identity who(bool chat) {
  return {.id = "id-1", .model = "m\"x", .fingerprint = "fp", .created = 5, .chat = chat};
}

struct delta {
  capnp::MallocMessageBuilder builder;
  msg::StreamDelta::Builder d = builder.initRoot<msg::StreamDelta>();
};

std::string head(bool chat) {
  return std::string(R"(data: {"id":"id-1","object":")") +
         (chat ? "chat.completion.chunk" : "text_completion") +
         R"(","created":5,"model":"m\"x","system_fingerprint":"fp","choices":[)";
}

void set_logprob(msg::StreamDelta::Builder d, float value) {
  auto one = d.initLogprobs(1)[0];
  const kj::byte bytes[] = {0xe2, 0x82};  // two thirds of a euro sign
  one.setBytes(kj::arrayPtr(bytes, 2));
  one.setLogprob(value);
  auto top = one.initTop(1)[0];
  const kj::byte a[] = {'a'};
  top.setBytes(kj::arrayPtr(a, 1));
  top.setLogprob(-0.25F);
}

}  // namespace

TEST_CASE("a chat's chunks", "[gateway]") {
  chunk_encoder e{who(true), false, false, 1};
  std::string out;
  e.begin(out, 0, {});
  REQUIRE(
      out ==
      head(true) +
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
          "\n\n");
  out.clear();
  delta text;
  text.d.setText("a\"\n\xe2\x82\xac");
  e.delta(out, 1, text.d);
  REQUIRE(out == head(true) + "{\"index\":1,\"delta\":{\"content\":\"a\\\"\\n\xe2\x82\xac\"},"
                              "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  out.clear();
  delta end;
  end.d.setFinish(msg::FinishReason::STOP);
  e.delta(out, 0, end.d);
  REQUIRE(out == head(true) + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]})"
                              "\n\n");
  out.clear();
  delta nothing;
  e.delta(out, 0, nothing.d);
  REQUIRE(out.empty());
  e.end(out, {});
  REQUIRE(out == "data: [DONE]\n\n");
}

TEST_CASE("usage comes in a chunk of its own, and as null before", "[gateway]") {
  chunk_encoder e{who(true), true, false, 1};
  std::string out;
  delta text;
  text.d.setText("a");
  e.delta(out, 0, text.d);
  REQUIRE(
      out ==
      head(true) +
          R"({"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n");
  out.clear();
  e.end(out, {.prompt_tokens = 7, .cached_tokens = 3, .completion_tokens = 2});
  REQUIRE(
      out ==
      head(true) +
          R"(],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3}}})"
          "\n\ndata: [DONE]\n\n");
}

TEST_CASE("tool calls stream as OpenAI's deltas", "[gateway]") {
  chunk_encoder e{who(true), false, false, 1};
  std::string out;
  delta first;
  auto call = first.d.initToolCalls(1)[0];
  call.setIndex(1);
  call.setId("c");
  call.setName("f");
  e.delta(out, 0, first.d);
  REQUIRE(
      out ==
      head(true) +
          R"({"index":0,"delta":{"tool_calls":[{"index":1,"id":"c","type":"function","function":{"name":"f","arguments":""}}]},"logprobs":null,"finish_reason":null}]})"
          "\n\n");
  out.clear();
  delta more;
  more.d.initToolCalls(1)[0].setArguments("{}");
  more.d.setFinish(msg::FinishReason::TOOL_CALLS);
  e.delta(out, 0, more.d);
  REQUIRE(
      out ==
      head(true) +
          R"({"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"logprobs":null,"finish_reason":null}]})"
          "\n\n" +
          head(true) +
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]})"
          "\n\n");
}

TEST_CASE("log probabilities of parts of characters, and of never", "[gateway]") {
  chunk_encoder e{who(true), false, true, 1};
  std::string out;
  delta d;
  set_logprob(d.d, -std::numeric_limits<float>::infinity());
  e.delta(out, 0, d.d);
  REQUIRE(out == head(true) +
                     "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":{\"content\":[{"
                     "\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.0,\"bytes\":[226,130],"
                     "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97]}]}],"
                     "\"refusal\":null},\"finish_reason\":null}]}\n\n");
}

TEST_CASE("a text completion's chunks", "[gateway]") {
  chunk_encoder e{who(false), false, true, 2};
  std::string out;
  e.begin(out, 0, "say ");
  REQUIRE(out == head(false) + R"({"index":0,"text":"say ","logprobs":null,"finish_reason":null}]})"
                               "\n\n");
  delta d;
  d.d.setText("x");
  set_logprob(d.d, -1);
  for (int offset = 0; offset < 2; ++offset) {
    out.clear();
    e.delta(out, 1, d.d);
    REQUIRE(out == head(false) +
                       "{\"index\":1,\"text\":\"x\",\"logprobs\":{\"tokens\":[\"\xef\xbf\xbd\"],"
                       "\"token_logprobs\":[-1.0],\"top_logprobs\":[{\"a\":-0.25}],"
                       "\"text_offset\":[" +
                       std::to_string(offset) + "]},\"finish_reason\":null}]}\n\n");
  }
  out.clear();
  delta end;
  end.d.setFinish(msg::FinishReason::LENGTH);
  e.delta(out, 0, end.d);
  REQUIRE(out == head(false) + R"({"index":0,"text":"","logprobs":null,"finish_reason":"length"}]})"
                               "\n\n");
}

TEST_CASE("a whole chat answer", "[gateway]") {
  whole_answer a{who(true), false, 2};
  delta x;
  x.d.setText("hel");
  a.delta(0, x.d);
  delta y;
  y.d.setText("lo");
  y.d.setFinish(msg::FinishReason::STOP);
  a.delta(0, y.d);
  delta call;
  auto c = call.d.initToolCalls(1)[0];
  c.setId("c");
  c.setName("f");
  c.setArguments("{");
  a.delta(1, call.d);
  delta rest;
  rest.d.initToolCalls(1)[0].setArguments("}");
  rest.d.setFinish(msg::FinishReason::TOOL_CALLS);
  a.delta(1, rest.d);
  REQUIRE(
      a.encode({.prompt_tokens = 1, .cached_tokens = 0, .completion_tokens = 2}) ==
      R"({"id":"id-1","object":"chat.completion","created":5,"model":"m\"x","system_fingerprint":"fp","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":"hello","refusal":null},"logprobs":null,"finish_reason":"stop"},)"
      R"({"index":1,"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],)"
      R"("usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST_CASE("a whole answer counts all that it holds", "[gateway]") {
  for (bool chat : {true, false}) {
    INFO("chat " << chat);
    whole_answer a{who(chat), true, 1};
    for (int i = 0; i < 100; ++i) {
      delta x;
      x.d.setText("word ");
      set_logprob(x.d, -0.5F);
      a.delta(0, x.d);
    }
    const auto held = a.bytes();
    CHECK(held + 512 >= a.encode({}).size());
  }
  whole_answer a{who(true), false, 1};
  delta call;
  auto c = call.d.initToolCalls(1)[0];
  c.setIndex(9);
  c.setId(std::string(1'000, 'i'));
  c.setName(std::string(1'000, 'n'));
  a.delta(0, call.d);
  CHECK(a.bytes() >= 2'000 + 10 * sizeof(std::string));
}

TEST_CASE("errors and models", "[gateway]") {
  REQUIRE(encode_error({.status = 400, .code = "c", .param = "n", .message = "m"}) ==
          R"({"error":{"message":"m","type":"invalid_request_error","param":"n","code":"c"}})");
  REQUIRE(encode_error(
              {.status = 503, .type = "server_error", .code = "c", .param = {}, .message = "m"}) ==
          R"({"error":{"message":"m","type":"server_error","param":null,"code":"c"}})");
  REQUIRE(
      encode_models({{"a"}}, 3) ==
      R"({"object":"list","data":[{"id":"a","object":"model","created":3,"owned_by":"troupe"}]})");
}

TEST_CASE("a chain does not depend on how its bytes came, and fields don't run together",
          "[gateway]") {
  const std::string text(5'000, 'q');
  chain_builder whole{1};
  whole.add(text);
  chain_builder pieces{1};
  for (std::size_t i = 0; i < text.size(); i += 7) pieces.add(std::string_view(text).substr(i, 7));
  const auto a = std::move(whole).take();
  REQUIRE(a.size() == text.size() / chain_block_bytes);
  REQUIRE(a == std::move(pieces).take());
  chain_builder x{1};
  x.add("ab");
  x.end_field();
  x.add("c" + text);
  chain_builder y{1};
  y.add("a");
  y.end_field();
  y.add("bc" + text);
  REQUIRE(std::move(x).take() != std::move(y).take());
}
