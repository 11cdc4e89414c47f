#include "text_fixture.hpp"

#include <simdjson.h>

namespace troupe::text {
namespace {

using namespace testing;

bool is_json(const std::string& text) {
  simdjson::dom::parser parser;
  return parser.parse(text).error() == simdjson::SUCCESS;
}

void set_schema(request& r, const char* schema) {
  r.root.getResponseFormat().setJsonSchema(schema);
}

TEST_CASE("what a schema allows is always JSON") {
  auto model = load();
  for (
      const auto* schema : {
          R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"], "additionalProperties": false})",
          R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"], "additionalProperties": false})",
          R"({"enum": ["red", "green", 3, null]})",
          R"({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4})",
          R"({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"$ref": "#/$defs/t"}}, "required": ["x"], "additionalProperties": false}], "$defs": {"t": {"type": "boolean"}}})",
      }) {
    INFO(schema);
    for (const bool chat : {true, false}) {
      request r;
      if (chat) {
        r.root.setIsChat(true);
        auto m = r.root.getPrompt().initMessages(1);
        m[0].setRole("user"), m[0].setContent("go");
      } else {
        r.root.getPrompt().setText("go");
      }
      set_schema(r, schema);
      const auto plan = rendered(*model, r).plan;
      REQUIRE_FALSE(plan.grammar.empty());
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const auto text = written(*model, plan, seed, 400);
        INFO("seed " << seed << ": " << text);
        CHECK(is_json(text));
      }
    }
  }
}

TEST_CASE("json_object allows an object and nothing else") {
  auto model = load();
  request r{{"user", "go"}};
  r.root.getResponseFormat().setJsonObject();
  const auto plan = rendered(*model, r).plan;
  auto limits = model->make_constraint(plan);
  REQUIRE(limits);
  const auto first = [&](const char* text) { return tokens_of(*model, text).back(); };
  CHECK((*limits)->allows(first("{")));
  CHECK_FALSE((*limits)->allows(first("[")));
  CHECK_FALSE((*limits)->allows(first("7")));
}

TEST_CASE("schemas that are broken or impossible are refused by name") {
  auto model = load();
  for (const auto* schema :
       {"", "{", "7", "[]", R"({"$ref": "#/nowhere"})", R"({"type": "nonesuch"})",
        R"({"type": "string", "pattern": "^a(b$"})"}) {
    INFO(schema);
    request r{{"user", "go"}};
    set_schema(r, schema);
    const auto why = render_error(*model, r);
    CHECK(why.code == "invalid_schema");
    CHECK(why.parameter == "response_format.json_schema");
  }
  request both{{"user", "go"}};
  both.root.setToolsJson(weather_tools);
  both.root.getResponseFormat().setJsonObject();
  CHECK(render_error(*model, both).parameter == "response_format");
}

TEST_CASE("replaying tokens brings a constraint to where it was") {
  auto model = load();
  request r{{"user", "go"}};
  set_schema(r, R"({"enum": ["red", "green"]})");
  const auto plan = rendered(*model, r).plan;
  auto limits = model->make_constraint(plan);
  REQUIRE(limits);
  for (const auto t : tokens_of(*model, "\"gr")) {
    if (model->piece(t) == " ") continue;
    (*limits)->accept(t);
  }
  CHECK((*limits)->allows(tokens_of(*model, "xe").back()));
  CHECK_FALSE((*limits)->allows(tokens_of(*model, "xd").back()));
}

TEST_CASE("a token that a grammar forbids ends the answer instead of the process") {
  auto model = load();
  request r{{"user", "go"}};
  r.root.getResponseFormat().setJsonObject();
  auto limits = model->make_constraint(rendered(*model, r).plan);
  REQUIRE(limits);
  (*limits)->accept(tokens_of(*model, "]").back());
  CHECK_FALSE((*limits)->allows(tokens_of(*model, "{").back()));
  CHECK((*limits)->allows(2));
  std::vector<std::pair<token_id, float>> all{{300, 1.0F}, {2, 1.0F}};
  (*limits)->mask(all);
  CHECK_FALSE(std::isfinite(all[0].second));
  CHECK(all[1].second == 1.0F);
}

TEST_CASE("a required tool must be called, with arguments that follow its schema") {
  for (const auto* which : {"", "gemma"}) {
    INFO("template \"" << which << '"');
    auto model = load(which);
    request r{{"user", "go"}};
    r.root.setToolsJson(
        R"([{"type": "function", "function": {"name": "pick", "parameters": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}}}])");
    r.root.setToolChoice(msg::ToolChoice::REQUIRED);
    r.root.setParallelToolCalls(false);
    const auto plan = rendered(*model, r).plan;
    CHECK_FALSE(plan.grammar_lazy);
    auto limits = model->make_constraint(plan);
    REQUIRE(limits);
    CHECK_FALSE((*limits)->allows(2));
    const std::string call =
        "<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"ok\": true}}\n</tool_call>";
    const auto tokens = tokens_of(*model, "x" + call);
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      INFO("at " << model->piece(tokens[i]));
      CHECK((*limits)->allows(tokens[i]));
      CHECK_FALSE((*limits)->allows(2));
      (*limits)->accept(tokens[i]);
    }
    CHECK((*limits)->allows(2));
    auto other = model->make_constraint(plan);
    for (const auto t :
         tokens_of(*model, "<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"ok\": t"))
      if (t != tokens_of(*model, "x").front()) (*other)->accept(t);
    CHECK_FALSE((*other)->allows(tokens_of(*model, "xa").back()));
  }
}

}  // namespace
}  // namespace troupe::text
