// What a body may say, and what each mistake is called.

#include "actors/gateway/openai/request.hpp"
#include "actors/gateway/openai/schema_check.hpp"

#include <capnp/serialize.h>
#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::gateway::openai;

namespace {

parse_options options() {
  parse_options o;
  o.prompt_bytes_max = 4'096;
  o.chain_key = 7;
  o.random = [] { return std::uint64_t{4711}; };
  return o;
}

parsed_request good(const parse_result& r) {
  if (const auto* e = std::get_if<api_error>(&r))
    FAIL(e->code << " " << e->param << ": " << e->message);
  return std::get<parsed_request>(r);
}

std::string chat_with(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + more + "}";
}
std::string chat_of(const std::string& messages) {
  return R"({"model":"m","messages":)" + messages + "}";
}
std::string completion_with(const std::string& more) {
  return R"({"model":"m","prompt":"hi",)" + more + "}";
}

struct content {
  explicit content(const request::prompt_content& c) : reader(c.words) {}
  msg::Completion::Reader get() { return reader.getRoot<msg::Completion>(); }
  capnp::FlatArrayMessageReader reader;
};

const std::string tool =
    R"({"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}})";

}  // namespace

TEST_CASE("a small chat becomes a completion with defaults", "[gateway]") {
  const auto r = good(parse_chat(chat_of(R"([{"role":"user","content":"hi"}])"), options()));
  REQUIRE(r.chat);
  REQUIRE(r.model == "m");
  REQUIRE(r.choices == 1);
  REQUIRE(r.max_tokens == 0);
  REQUIRE_FALSE(r.stream);
  REQUIRE(r.prompts.size() == 1);
  content c{*r.prompts[0]};
  REQUIRE(c.get().getIsChat());
  REQUIRE(c.get().getModel() == "m");
  REQUIRE(c.get().getPrompt().isMessages());
  const auto m = c.get().getPrompt().getMessages();
  REQUIRE(m.size() == 1);
  REQUIRE(m[0].getRole() == "user");
  REQUIRE(m[0].getContent() == "hi");
  REQUIRE(m[0].hasContent());
  REQUIRE(c.get().getSampling().getTemperature() == 1.0F);
  REQUIRE(c.get().getSampling().getSeed() == 4711);
  REQUIRE(c.get().getResponseFormat().isText());
  REQUIRE(c.get().getToolsJson().size() == 0);
}

TEST_CASE("every parameter of a chat arrives", "[gateway]") {
  const auto r = good(parse_chat(
      chat_with(
          R"("max_tokens":5,"max_completion_tokens":5,"temperature":0,"top_p":0.5,"top_k":40,"min_p":0.25,"seed":-1,
             "stop":["a","b"],"n":3,"presence_penalty":-1.5,"frequency_penalty":2,"logit_bias":{"17":-100,"4":5},
             "logprobs":true,"top_logprobs":4,"response_format":{"type":"json_object"},"tools":[)" +
          tool +
          R"(],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"user":"u",
             "stream":true,"stream_options":{"include_usage":true},"metadata":{"a":"b"},"store":false,
             "service_tier":"auto","ignore_eos":false,"chat_template_kwargs":{"x": 1})"),
      options()));
  REQUIRE(r.max_tokens == 5);
  REQUIRE(r.choices == 3);
  REQUIRE(r.stream);
  REQUIRE(r.include_usage);
  REQUIRE(r.logprobs);
  REQUIRE(r.user == "u");
  content c{*r.prompts[0]};
  const auto s = c.get().getSampling();
  REQUIRE(s.getTemperature() == 0.0F);
  REQUIRE(s.getTopP() == 0.5F);
  REQUIRE(s.getTopK() == 40);
  REQUIRE(s.getMinP() == 0.25F);
  REQUIRE(s.getSeed() == ~std::uint64_t{0});
  REQUIRE(s.getPresencePenalty() == -1.5F);
  REQUIRE(s.getFrequencyPenalty() == 2.0F);
  REQUIRE(s.getLogitBias().size() == 2);
  REQUIRE(s.getLogitBias()[0].getToken() == 17);
  REQUIRE(s.getLogitBias()[0].getBias() == -100.0F);
  REQUIRE(c.get().getStop().size() == 2);
  REQUIRE(c.get().getStop()[1] == "b");
  REQUIRE(c.get().getMaxTokens() == 5);
  REQUIRE(c.get().getChoices() == 3);
  REQUIRE(c.get().getLogprobs());
  REQUIRE(c.get().getTopLogprobs() == 4);
  REQUIRE(c.get().getResponseFormat().isJsonObject());
  REQUIRE(std::string(c.get().getToolsJson().cStr()) == "[" + tool + "]");
  REQUIRE(c.get().getToolChoice() == msg::ToolChoice::FUNCTION);
  REQUIRE(c.get().getToolName() == "f");
  REQUIRE_FALSE(c.get().getParallelToolCalls());
  REQUIRE_FALSE(c.get().getIgnoreEos());
  REQUIRE(c.get().getChatTemplateKwargsJson() == "{\"x\":1}");
}

TEST_CASE("an answer may go on beyond its end where no grammar holds it", "[gateway]") {
  for (const auto& body :
       {chat_with(R"("ignore_eos":true)"),
        chat_with(R"("ignore_eos":true,"response_format":{"type":"text"})"),
        chat_with(R"("ignore_eos":true,"tool_choice":"none","tools":[)" + tool + "]")}) {
    INFO(body);
    const auto r = good(parse_chat(body, options()));
    REQUIRE(content{*r.prompts[0]}.get().getIgnoreEos());
  }
}

TEST_CASE("a conversation with parts, tool calls and their answers", "[gateway]") {
  const auto r = good(parse_chat(chat_of(R"([
      {"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"developer","content":""},
      {"role":"user","content":"q","name":"José-1"},
      {"role":"assistant","content":null,"refusal":null,"annotations":[],"function_call":null,
       "reasoning_content":"I call f.",
       "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"42"}])"),
                                 options()));
  content c{*r.prompts[0]};
  const auto m = c.get().getPrompt().getMessages();
  REQUIRE(m.size() == 5);
  REQUIRE(m[0].getContent() == "ab");
  REQUIRE(m[1].hasContent());
  REQUIRE(m[2].getName() == "José-1");
  REQUIRE_FALSE(m[3].hasContent());
  REQUIRE(m[3].getToolCallsJson() ==
          R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}])");
  REQUIRE(m[4].getToolCallId() == "c1");
}

TEST_CASE("a schema travels as it was sent, without white space", "[gateway]") {
  const auto r = good(parse_chat(
      chat_with(
          R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,
             "schema":{"type":"object","properties":{"b":{"type":"integer"},"a":{"enum":[1,null]}},"required":["b"]}}})"),
      options()));
  content c{*r.prompts[0]};
  REQUIRE(
      c.get().getResponseFormat().getJsonSchema() ==
      R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"enum":[1,null]}},"required":["b"]})");
}

TEST_CASE("the four shapes of a prompt", "[gateway]") {
  auto prompts = [](const std::string& p) {
    return good(parse_completion(R"({"model":"m","prompt":)" + p + "}", options())).prompts;
  };
  REQUIRE(content{*prompts(R"("x")")[0]}.get().getPrompt().getText() == "x");
  const auto texts = prompts(R"(["x","y"])");
  REQUIRE(texts.size() == 2);
  REQUIRE(content{*texts[1]}.get().getPrompt().getText() == "y");
  const auto tokens = prompts("[1,2,3]");
  REQUIRE(tokens.size() == 1);
  REQUIRE(content{*tokens[0]}.get().getPrompt().getTokens().size() == 3);
  const auto lists = prompts("[[1],[2,5]]");
  REQUIRE(lists.size() == 2);
  REQUIRE(content{*lists[1]}.get().getPrompt().getTokens()[1] == 5);
  REQUIRE_FALSE(content{*lists[1]}.get().getIsChat());
}

TEST_CASE("completions have OpenAI's own default length", "[gateway]") {
  REQUIRE(good(parse_completion(R"({"model":"m","prompt":"x"})", options())).max_tokens == 16);
  const auto r = good(parse_completion(completion_with(R"("logprobs":3)"), options()));
  REQUIRE(r.logprobs);
  REQUIRE(content{*r.prompts[0]}.get().getTopLogprobs() == 3);
}

TEST_CASE("null is the same as not given", "[gateway]") {
  const auto r = good(parse_chat(
      chat_with(
          R"("max_tokens":null,"temperature":null,"stop":null,"tools":null,"functions":null,"stream_options":null,"seed":null)"),
      options()));
  REQUIRE(r.max_tokens == 0);
}

TEST_CASE("bad chats are refused by name", "[gateway]") {
  struct row {
    std::string body;
    const char* code;
    const char* param;
    int status = 400;
  };
  const std::string deep = R"({"model":"m","messages":)" + std::string(100, '[') +
                           std::string(100, ']') + "}";
  std::string many_biases = R"("logit_bias":{"0":1)";
  for (int i = 1; i <= 1'024; ++i) many_biases += ",\"" + std::to_string(i) + "\":1";
  many_biases += '}';
  const std::vector<row> rows = {
      // the body itself
      {"", "invalid_json", ""},
      {"{", "invalid_json", ""},
      {"{}x", "invalid_json", ""},
      {R"({"model":1e999})", "invalid_json", ""},
      {R"({"model":"\ud800"})", "invalid_json", ""},
      {"{\"model\":\"\xff\"}", "invalid_utf8", ""},
      {deep, "json_too_deep", ""},
      {"[]", "invalid_type", ""},
      {"null", "invalid_type", ""},
      {"{}", "missing_required_parameter", "model"},
      {R"({"model":"m"})", "missing_required_parameter", "messages"},
      {R"({"model":"m","model":"n","messages":[]})", "duplicate_parameter", "model"},
      // messages
      {chat_of("[]"), "invalid_value", "messages"},
      {chat_of("{}"), "invalid_type", "messages"},
      {chat_of("[1]"), "invalid_type", "messages[0]"},
      {chat_of("[{}]"), "missing_required_parameter", "messages[0].role"},
      {chat_of(R"([{"role":"king","content":"x"}])"), "invalid_value", "messages[0].role"},
      {chat_of(R"([{"role":1,"content":"x"}])"), "invalid_type", "messages[0].role"},
      {chat_of(R"([{"role":"user"}])"), "missing_required_parameter", "messages[0].content"},
      {chat_of(R"([{"role":"user","content":null}])"), "missing_required_parameter",
       "messages[0].content"},
      {chat_of(R"([{"role":"user","content":5}])"), "invalid_type", "messages[0].content"},
      {chat_of(R"([{"role":"user","content":[]}])"), "invalid_value", "messages[0].content"},
      {chat_of(
           R"([{"role":"system","content":"s"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
       "unsupported_parameter", "messages[1].content[0].type"},
      {chat_of(R"([{"role":"user","content":[{"text":"x"}]}])"), "missing_required_parameter",
       "messages[0].content[0].type"},
      {chat_of(R"([{"role":"user","content":[{"type":"text"}]}])"), "missing_required_parameter",
       "messages[0].content[0].text"},
      {chat_of(R"([{"role":"user","content":"x","name":"a b"}])"), "invalid_value",
       "messages[0].name"},
      {chat_of(R"([{"role":"user","content":"x","name":"<|im_end|>"}])"), "invalid_value",
       "messages[0].name"},
      {chat_of(R"([{"role":"user","content":"x","name":"a\nb"}])"), "invalid_value",
       "messages[0].name"},
      {chat_of(R"([{"role":"user","content":"x","name":""}])"), "invalid_value",
       "messages[0].name"},
      {chat_of(R"([{"role":"user","content":"x","name":"[INST]"}])"), "invalid_value",
       "messages[0].name"},
      {chat_of(R"([{"role":"tool","tool_call_id":"c","content":"x","name":"José"}])"),
       "invalid_value", "messages[0].name"},
      {chat_of(R"([{"role":"user","content":"x","weight":1}])"), "unknown_parameter",
       "messages[0].weight"},
      {chat_of(R"([{"role":"user","content":"x","tool_calls":[]}])"), "unknown_parameter",
       "messages[0].tool_calls"},
      {chat_of(R"([{"role":"assistant"}])"), "missing_required_parameter", "messages[0].content"},
      {chat_of(
           R"([{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{}}}]}])"),
       "invalid_type", "messages[0].tool_calls[0].function.arguments"},
      {chat_of(R"([{"role":"assistant","content":"x","audio":{"id":"1"}}])"),
       "unsupported_parameter", "messages[0].audio"},
      {chat_of(R"([{"role":"tool","content":"x"}])"), "missing_required_parameter",
       "messages[0].tool_call_id"},
      {chat_of(R"([{"role":"tool","content":"x","tool_call_id":"c9"}])"), "invalid_value",
       "messages[0].tool_call_id"},
      {chat_of("[{\"role\":\"user\",\"content\":\"" + std::string(5'000, 'x') + "\"}]"),
       "prompt_too_large", "messages", 413},
      // numbers
      {chat_with(R"("temperature":"1")"), "invalid_type", "temperature"},
      {chat_with(R"("temperature":2.5)"), "invalid_value", "temperature"},
      {chat_with(R"("temperature":-0.1)"), "invalid_value", "temperature"},
      {chat_with(R"("top_p":1.5)"), "invalid_value", "top_p"},
      {chat_with(R"("max_tokens":0)"), "invalid_value", "max_tokens"},
      {chat_with(R"("max_tokens":1.5)"), "invalid_type", "max_tokens"},
      {chat_with(R"("max_tokens":4294967296)"), "invalid_value", "max_tokens"},
      {chat_with(R"("max_tokens":5,"max_completion_tokens":6)"), "invalid_value", "max_tokens"},
      {chat_with(R"("n":0)"), "invalid_value", "n"},
      {chat_with(R"("n":17)"), "invalid_value", "n"},
      {chat_with(R"("seed":18446744073709551615)"), "invalid_value", "seed"},
      {chat_with(R"("presence_penalty":3)"), "invalid_value", "presence_penalty"},
      {chat_with(R"("top_logprobs":3)"), "invalid_value", "top_logprobs"},
      {chat_with(R"("logprobs":true,"top_logprobs":21)"), "invalid_value", "top_logprobs"},
      {chat_with(R"("logprobs":2)"), "invalid_type", "logprobs"},
      // stop, logit_bias, stream_options
      {chat_with(R"("stop":[])"), "invalid_value", "stop"},
      {chat_with(R"("stop":["a","b","c","d","e"])"), "invalid_value", "stop"},
      {chat_with(R"("stop":["a",""])"), "invalid_value", "stop[1]"},
      {chat_with(R"("stop":[7])"), "invalid_type", "stop[0]"},
      {chat_with(R"("logit_bias":[1])"), "invalid_type", "logit_bias"},
      {chat_with(R"("logit_bias":{"x":1})"), "invalid_value", "logit_bias.x"},
      {chat_with(R"("logit_bias":{"-1":1})"), "invalid_value", "logit_bias.-1"},
      {chat_with(R"("logit_bias":{"1":101})"), "invalid_value", "logit_bias.1"},
      {chat_with(many_biases), "invalid_value", "logit_bias"},
      {chat_with(R"("stream_options":{"include_usage":true})"), "invalid_value", "stream_options"},
      {chat_with(R"("stream":true,"stream_options":{"x":1})"), "unknown_parameter",
       "stream_options.x"},
      {chat_with(R"("stream":"yes")"), "invalid_type", "stream"},
      // what is known, unknown, and without effect
      {chat_with(R"("functions":[])"), "unsupported_parameter", "functions"},
      {chat_with(R"("reasoning_effort":"low")"), "unsupported_parameter", "reasoning_effort"},
      {chat_with(R"("store":true)"), "unsupported_parameter", "store"},
      {chat_with(R"("service_tier":"flex")"), "unsupported_parameter", "service_tier"},
      {chat_with(R"("metadata":{"a":1})"), "invalid_type", "metadata.a"},
      {chat_with(R"("temprature":1)"), "unknown_parameter", "temprature"},
      {chat_with(R"("echo":true)"), "unknown_parameter", "echo"},
      // tools
      {chat_with(R"("tools":[])"), "invalid_value", "tools"},
      {chat_with(R"("tools":[{"type":"web"}])"), "unsupported_parameter", "tools[0].type"},
      {chat_with(R"("tools":[{"type":"function"}])"), "missing_required_parameter",
       "tools[0].function"},
      {chat_with(R"("tools":[{"type":"function","function":{"name":"a.b"}}])"), "invalid_value",
       "tools[0].function.name"},
      {chat_with(R"("tools":[)" + tool + "," + tool + "]"), "invalid_value",
       "tools[1].function.name"},
      {chat_with(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"),
       "invalid_type", "tools[0].function.parameters"},
      {chat_with(R"("tool_choice":"auto")"), "invalid_value", "tool_choice"},
      {chat_with(R"("parallel_tool_calls":true)"), "invalid_value", "parallel_tool_calls"},
      {chat_with(R"("tools":[)" + tool + R"(],"tool_choice":"maybe")"), "invalid_value",
       "tool_choice"},
      {chat_with(R"("tools":[)" + tool +
                 R"(],"tool_choice":{"type":"function","function":{"name":"g"}})"),
       "invalid_value", "tool_choice.function.name"},
      // ignore_eos
      {chat_with(R"("ignore_eos":true,"response_format":{"type":"json_object"})"),
       "unsupported_parameter", "ignore_eos"},
      {chat_with(
           R"("ignore_eos":true,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}})"),
       "unsupported_parameter", "ignore_eos"},
      {chat_with(R"("ignore_eos":true,"tools":[)" + tool + "]"), "unsupported_parameter",
       "ignore_eos"},
      {chat_with(R"("ignore_eos":true,"tool_choice":"required","tools":[)" + tool + "]"),
       "unsupported_parameter", "ignore_eos"},
      // response_format
      {chat_with(R"("response_format":"json")"), "invalid_type", "response_format"},
      {chat_with(R"("response_format":{"type":"xml"})"), "invalid_value", "response_format.type"},
      {chat_with(R"("response_format":{"type":"json_schema"})"), "missing_required_parameter",
       "response_format.json_schema"},
      {chat_with(R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"),
       "missing_required_parameter", "response_format.json_schema.schema"},
  };
  for (const auto& r : rows) {
    INFO(r.body.substr(0, 200));
    const auto result = parse_chat(r.body, options());
    REQUIRE(std::holds_alternative<api_error>(result));
    const auto& e = std::get<api_error>(result);
    INFO(e.message);
    CHECK(e.code == r.code);
    CHECK(e.param == r.param);
    CHECK(e.status == r.status);
    CHECK(e.type == "invalid_request_error");
    CHECK_FALSE(e.message.empty());
    CHECK(e.message.size() < 400);
  }
}

TEST_CASE("an object of a schema has a bounded number of members, wherever it stands",
          "[gateway]") {
  const auto wide = [](std::size_t members) {
    std::string out = "{";
    for (std::size_t i = 0; i < members; ++i)
      out += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
    return out + "}";
  };
  const auto format = [](const std::string& inner) {
    return chat_with(
        R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"default":[)" +
        inner + "]}}}");
  };
  const auto called = [](const std::string& inner) {
    return chat_with(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"x":)" +
                     inner + "}}}]");
  };
  auto roomy = options();
  roomy.prompt_bytes_max = 1U << 20U;
  good(parse_chat(format(wide(schema_members_max)), roomy));
  good(parse_chat(called(wide(schema_members_max)), roomy));
  for (const auto& [body, where] :
       {std::pair{format(wide(schema_members_max + 1)),
                  "response_format.json_schema.schema.default[0]"},
        std::pair{called(wide(schema_members_max + 1)), "tools[0].function.parameters.x"}}) {
    const auto refused = parse_chat(body, roomy);
    REQUIRE(std::holds_alternative<api_error>(refused));
    CHECK(std::get<api_error>(refused).code == "invalid_json_schema");
    CHECK(std::get<api_error>(refused).param == where);
  }
}

TEST_CASE("schemas that no value can satisfy are refused where they are wrong", "[gateway]") {
  struct row {
    const char* schema;
    const char* param;
  };
  const std::vector<row> rows = {
      {R"({"type":"strnig"})", ".type"},
      {R"({"type":[]})", ".type"},
      {R"({"type":["string",1]})", ".type[1]"},
      {R"({"type":["string","null","string"]})", ".type[2]"},
      {R"({"properties":[]})", ".properties"},
      {R"({"properties":{"a":{"enum":[]}}})", ".properties.a.enum"},
      {R"({"required":[1]})", ".required[0]"},
      {R"({"anyOf":[]})", ".anyOf"},
      {R"({"items":7})", ".items"},
      {R"({"minimum":5,"maximum":4})", ".minimum"},
      {R"({"minLength":-1})", ".minLength"},
      {R"({"minItems":2.5})", ".minItems"},
      {R"({"maxItems":1e300,"minItems":1,"properties":{"a":{"minLength":2,"maxLength":1}}})",
       ".properties.a.minLength"},
      {R"({"$ref":"http://x/y"})", ".$ref"},
      {R"({"not":[]})", ".not"},
  };
  for (const auto& r : rows) {
    INFO(r.schema);
    const auto result = parse_chat(
        chat_with(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
                  std::string(r.schema) + "}}"),
        options());
    REQUIRE(std::holds_alternative<api_error>(result));
    CHECK(std::get<api_error>(result).param ==
          "response_format.json_schema.schema" + std::string(r.param));
  }
}

TEST_CASE("bad completions are refused by name", "[gateway]") {
  struct row {
    std::string body;
    const char* code;
    const char* param;
  };
  const std::vector<row> rows = {
      {R"({"model":"m"})", "missing_required_parameter", "prompt"},
      {R"({"model":"m","prompt":[]})", "invalid_value", "prompt"},
      {R"({"model":"m","prompt":{}})", "invalid_type", "prompt"},
      {R"({"model":"m","prompt":["a",1]})", "invalid_type", "prompt[1]"},
      {R"({"model":"m","prompt":[1,"a"]})", "invalid_type", "prompt[1]"},
      {R"({"model":"m","prompt":[1,-2]})", "invalid_value", "prompt[1]"},
      {R"({"model":"m","prompt":[[1],[]]})", "invalid_value", "prompt[1]"},
      {R"({"model":"m","prompt":[[1],[4294967296]]})", "invalid_value", "prompt[1][0]"},
      {completion_with(R"("suffix":"x")"), "unsupported_parameter", "suffix"},
      {completion_with(R"("best_of":2)"), "unsupported_parameter", "best_of"},
      {completion_with(R"("logprobs":6)"), "invalid_value", "logprobs"},
      {completion_with(R"("logprobs":true)"), "invalid_type", "logprobs"},
      {completion_with(R"("echo":true,"logprobs":1)"), "unsupported_parameter", "echo"},
      {completion_with(R"("messages":[])"), "unknown_parameter", "messages"},
      {completion_with(R"("tools":[])"), "unknown_parameter", "tools"},
  };
  for (const auto& r : rows) {
    INFO(r.body);
    const auto result = parse_completion(r.body, options());
    REQUIRE(std::holds_alternative<api_error>(result));
    CHECK(std::get<api_error>(result).code == r.code);
    CHECK(std::get<api_error>(result).param == r.param);
  }
  std::string many = R"({"model":"m","prompt":["a")";
  for (int i = 0; i < 64; ++i) many += ",\"a\"";
  REQUIRE(std::holds_alternative<api_error>(parse_completion(many + "]}", options())));
}

TEST_CASE("prompts with a common beginning have chains with a common beginning", "[gateway]") {
  auto big = options();
  big.prompt_bytes_max = 1'000'000;
  auto chain = [&](const std::string& user, const std::string& more = "") {
    return good(parse_chat(R"({"model":"m","messages":[{"role":"system","content":")" +
                               std::string(2'000, 's') + R"("},{"role":"user","content":")" + user +
                               "\"}" + more + "]}",
                           big))
        .prompts[0]
        ->chain;
  };
  const auto a = chain(std::string(600, 'a'));
  const auto b = chain(std::string(600, 'b'));
  REQUIRE(a.size() == b.size());
  REQUIRE(a.size() >= 5);
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(a[i] == b[i]);
  REQUIRE(a.back() != b.back());
  // A conversation that goes on keeps all blocks that it had.
  const auto longer = chain(std::string(600, 'a'),
                            R"(,{"role":"assistant","content":"x"},{"role":"user","content":"y"})");
  for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(longer[i] == a[i]);
  // Another key, other chains.
  big.chain_key = 8;
  REQUIRE(chain(std::string(600, 'a'))[0] != a[0]);
}
