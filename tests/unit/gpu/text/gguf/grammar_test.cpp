#include "text_fixture.hpp"

#include <simdjson.h>

namespace troupe::text {
namespace {

using namespace testing;

bool is_json(const std::string& text) {
  simdjson::dom::parser parser;
  return parser.parse(text).error() == simdjson::SUCCESS;
}

std::string object_of(int properties, bool required) {
  std::string names, list;
  for (int i = 0; i < properties; ++i) {
    const auto name = "\"p" + std::to_string(i) + "\"";
    names += (i == 0 ? "" : ", ") + name;
    list += (i == 0 ? "" : ", ") + name + R"(: {"type": "string"})";
  }
  return R"({"type": "object", "properties": {)" + list + "}, \"required\": [" +
         (required ? names : "") + "], \"additionalProperties\": false}";
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
}

TEST_CASE("schemas that llama.cpp would loop on, or ignore in part, are refused by place") {
  auto model = load();
  const auto refused = [&](const std::string& schema, const char* place) {
    INFO(schema.substr(0, 200));
    request r{{"user", "go"}};
    set_schema(r, schema);
    const auto why = render_error(*model, r);
    CHECK(why.code == "invalid_schema");
    CHECK(why.message.find(place) != std::string::npos);
    CHECK(why.message.size() < 1000);
  };
  refused(
      R"({"type": "object", "properties": {"a": {"type": "string", "minLength": 5, "maxLength": 2}}})",
      "#/properties/a ");
  refused(R"({"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 1})", "# ");
  refused(R"({"type": "integer", "minimum": 5, "maximum": 2})", "# ");
  refused(R"({"type": "string", "maxLength": 1000000000})", "maxLength 1000000000");
  refused(R"({"type": "string", "minLength": -1})", "minLength -1");
  refused(
      R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})",
      "itself");
  refused(R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})", "uniqueItems");
  refused(R"({"anyOf": [{"type": "null"}, {"not": {"type": "null"}}]})", "#/anyOf/1 ");
  std::string deep;
  for (int i = 0; i < 3000; ++i) deep += R"({"type":"object","properties":{"a":)";
  deep += "{}";
  for (int i = 0; i < 3000; ++i) deep += "}}";
  refused(deep, "nested");
  const auto list = [](const char* key, int count, const std::string& one) {
    std::string out = std::string(R"({")") + key + R"(":[)";
    for (int i = 1; i < count; ++i) out += one + ",";
    return out + one + "]}";
  };
  refused(list("allOf", 30'000, "{}"), "parts");
  refused(list("allOf", 30'000, R"({"type":"null"})"), "bytes");
  refused(list("anyOf", 1'001, "{}"), "alternatives");
  refused(list("enum", 1'001, "1"), "alternatives");
  refused(list("allOf", 300, R"({"type":"string","maxLength":2000})"), "repetitions");
  // Names that would be matched by recursion, character by character, or numbered one by one.
  const auto object = [](const std::string& names) {
    return R"({"type":"object","properties":{)" + names + "}}";
  };
  refused(object("\"" + std::string(257, '_') + R"(":{})"), "257 bytes");
  refused(R"({"$ref":"#/)" + std::string(2'000, '_') + "\"}", "reference");
  const auto definitions = [](int count, const auto& name) {
    std::string out = R"({"$defs":{)";
    for (int i = 0; i < count; ++i) out += (i > 0 ? ",\"" : "\"") + name(i) + R"(":{})";
    return out + "}}";
  };
  refused(definitions(1'001,
                      [](int i) {
                        return std::string(static_cast<std::size_t>(i % 200 + 1), '_') + "a" +
                               std::string(static_cast<std::size_t>(i / 200 + 1), '.');
                      }),
          "names that differ only");
  auto far = definitions(700, [](int i) { return "n" + std::to_string(i); });
  for (int i = 0; i < 30; ++i) far = R"({"$defs":{")" + std::string(250, 'n') + "\":" + far + "}}";
  refused(far, "long names");
  refused(R"({"type": "string", "pattern": "^(a?){2000}b$"})", "pattern");
  refused(R"({"type": "string", "pattern": "^((a?){50}){50}b$"})", "pattern");
  refused(R"({"type": "string", "pattern": "^((.?.?){1000})*$"})", "pattern");
  refused(R"({"type": "string", "pattern": "^[a-z]{3000}$"})", "pattern");
  refused(R"({"type": "string", "pattern": "^(.{0,50}a){0,20}$"})", "pattern");
  refused(object_of(101, false), "optional");
  std::string many = R"({"type": "object", "required": ["a", "b", "c", "d", "e"], "properties": {)";
  for (char name = 'a'; name <= 'e'; ++name)
    many += (name == 'a' ? "\"" : ", \"") + std::string(1, name) + "\": " + object_of(99, false);
  refused(many + "}}", "optional");
}

TEST_CASE("a pattern is held exactly, in the JSON text of the value") {
  auto model = load();
  struct row {
    const char* pattern;
    std::vector<const char*> taken;
    std::vector<const char*> not_taken;
  };
  const std::vector<row> rows = {
      {R"(^\d{3}-\d+$)", {R"("123-4")", R"("000-99")"}, {R"("12-4")", R"("abc-1")", R"("123-")"}},
      {R"(^\w+\s?\W$)", {R"("a_9 !")", R"("Z-")", R"("a\t-")"}, {R"("a_9 b")", R"(" !")"}},
      {R"(^[\d.]+$)", {R"("1.2")"}, {R"("1,2")", R"("")"}},
      {R"(^[^\s\d]$)", {R"("x")", R"("\"")", R"("\\")"}, {R"("1")", R"(" ")", R"(""")"}},
      {R"(^.$)",
       {R"("a")", R"("\"")", R"("\u0007")", "\"\xC3\xA9\""},
       {R"(""")", R"("\n")", R"("ab")"}},
      {R"(^a\.*b$)", {R"("ab")", R"("a..b")"}, {R"("a.a.b")", R"("axb")"}},
      {R"(^(?:ab|c)+?$)", {R"("abc")"}, {R"("")", R"("a")"}},
      {R"(^(?<year>\d{4})$)", {R"("2026")"}, {R"("202")"}},
      {R"(^(a|)b$)", {R"("ab")", R"("b")"}, {R"("a")"}},
      {R"(^$)", {R"("")"}, {R"("a")"}},
      {R"(^\u0041\x42\u{43}\n\/\-$)", {R"("ABC\n/-")"}, {R"("abc\n/-")"}},
      {R"(^\uD83D\uDE00[\u{1F600}-\u{1F60F}]$)",
       {"\"\xF0\x9F\x98\x80\xF0\x9F\x98\x81\""},
       {R"("a")"}},
      {R"(b)", {R"("abc")", R"("b")", R"("\nb\"")"}, {R"("ac")", R"("")"}},
      {R"(^a|b$)", {R"("ax")", R"("xb")"}, {R"("xax")"}},
      {R"(^a{2,3}$)", {R"("aa")", R"("aaa")"}, {R"("a")", R"("aaaa")"}},
      {R"(^a{2,}$)", {R"("aa")", R"("aaaaaa")"}, {R"("a")"}},
      {"^\"\\\\$", {R"("\"\\")"}, {R"(""\\")"}},
  };
  for (const auto& r : rows) {
    std::string schema = R"({"type": "string", "pattern": ")";
    for (const char* c = r.pattern; *c != 0; ++c) {
      if (*c == '"' || *c == '\\') schema += '\\';
      schema += *c;
    }
    schema += "\"}";
    INFO(schema);
    check_schema(*model, schema, r.taken, r.not_taken);
  }
}

TEST_CASE("what no grammar can hold of a pattern is refused by name") {
  auto model = load();
  struct row {
    const char* pattern;
    const char* part;
  };
  for (const auto& [pattern, part] :
       std::initializer_list<row>{{R"(^(?=a)b$)", "`(?=...)`"},
                                  {R"(^(?!a)b$)", "`(?!...)`"},
                                  {R"(^(?<=a)b$)", "`(?<=...)`"},
                                  {R"(^(?<!a)b$)", "`(?<!...)`"},
                                  {R"(^(?i)b$)", "`(?i`"},
                                  {R"(^(a)\\1$)", "`\\1`, a reference to a group"},
                                  {R"(^a\\b$)", "`\\b`, which looks around"},
                                  {R"(^\\p{L}$)", "`\\p`"},
                                  {R"(^\\q$)", "`\\q`"},
                                  {R"(^a^b$)", "an anchor inside"},
                                  {R"(^(a$)$)", "an anchor inside"},
                                  {R"(^(a$)", "an anchor inside"},
                                  {R"(^(a)", "`(` without an end"},
                                  {R"(^a)$)", "`)` without a group"},
                                  {R"(^[a$)", "`[` without an end"},
                                  {R"(^[b-a]$)", "a range backwards"},
                                  {R"(^[^\\s\\S]$)", "a class that nothing is in"},
                                  {R"(^*$)", "a repetition of nothing"},
                                  {R"(^a{2,1}$)", "`{2,1}`"},
                                  {R"(^a{b}$)", "`{` that begins no repetition"},
                                  {R"(^\\ud800$)", "half a surrogate pair"},
                                  {R"(^a\\)", "`\\` at the end"}}) {
    INFO(pattern);
    request r{{"user", "go"}};
    set_schema(r, R"({"properties": {"a": {"type": "string", "pattern": ")" + std::string(pattern) +
                      "\"}}}");
    const auto why = render_error(*model, r);
    CHECK(why.code == "invalid_schema");
    CHECK(why.parameter == "response_format.json_schema");
    CHECK(why.message.find("#/properties/a ") != std::string::npos);
    CHECK(why.message.find(part) != std::string::npos);
  }
  request both{{"user", "go"}};
  set_schema(both, R"({"type": "string", "pattern": "^a+$", "maxLength": 3})");
  CHECK(render_error(*model, both).message.find("`maxLength`") != std::string::npos);
}

TEST_CASE("what schemas may have at the most, they have soon") {
  auto model = load();
  for (const auto& schema :
       {object_of(100, false), object_of(1'000, true),
        std::string(R"({"type": "string", "pattern": "^[a-z]{1,255}(-[0-9]{4}){1,8}$"})"),
        std::string(R"({"type": "string", "pattern": "^(a?){64}b$"})"),
        std::string(R"({"type": "string", "pattern": "^([0-9a-f]{4}-){20}$"})"),
        std::string(R"({"type": "string", "pattern": "^[0-9]{1,255}[^)({}\\]]{2}\\(x$"})")}) {
    INFO(schema.substr(0, 100));
    request r{{"user", "go"}};
    set_schema(r, schema);
    CHECK(model->make_constraint(rendered(*model, r).plan));
  }
}

TEST_CASE("names of properties are no keywords, and data is no schema") {
  auto model = load();
  for (
      const auto* schema :
      {R"({"type": "object", "properties": {"not": {"type": "boolean"}, "minLength": {"type": "null"}}})",
       R"({"enum": [{"not": 1}, {"minItems": 4, "maxItems": 2}]})",
       R"({"type": "boolean", "default": {"uniqueItems": 1}})"}) {
    INFO(schema);
    request r{{"user", "go"}};
    set_schema(r, schema);
    CHECK_FALSE(rendered(*model, r).plan.grammar.empty());
  }
  request tool{{"user", "go"}};
  tool.root.setToolsJson(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}}}])");
  CHECK(rendered(*model, tool).plan.grammar_lazy);
}

TEST_CASE("a schema and tools at once are refused, not half done") {
  auto model = load();
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

TEST_CASE("what is masked together is what is forbidden one by one") {
  auto model = load();
  for (const auto* schema : {R"({"enum": ["red", "green", "\u00e9\u4f60", " the"]})",
                             R"({"type": "string", "pattern": "^[^a-y]+\\s.*$"})",
                             R"({"type": "object", "properties": {"a": {"type": "number"}}})"}) {
    INFO(schema);
    request r{{"user", "go"}};
    set_schema(r, schema);
    auto limits = model->make_constraint(rendered(*model, r).plan);
    REQUIRE(limits);
    std::uint64_t x = 7;
    for (int step = 0; step < 12; ++step) {
      std::vector<std::pair<token_id, float>> all;
      for (token_id t = 0; t < static_cast<token_id>(model->vocabulary()); ++t)
        all.emplace_back(t, 1.0F);
      (*limits)->mask(all);
      std::vector<token_id> open;
      for (const auto& [t, logit] : all) {
        if (std::isfinite(logit) != (*limits)->allows(t))
          FAIL_CHECK(step << ": " << model->piece(t));
        if (std::isfinite(logit) && !model->is_end(t)) open.push_back(t);
      }
      if (open.empty()) break;
      x = x * 6364136223846793005ULL + 1442695040888963407ULL;
      (*limits)->accept(open[(x >> 33U) % open.size()]);
    }
  }
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

/// Whether the grammar lets an answer begin so.
bool allowed(const text_model& model, const engine::output_plan& plan, const std::string& text) {
  auto limits = model.make_constraint(plan);
  REQUIRE(limits);
  const auto tokens = tokens_of(model, "x" + text);  // lest the tokeniser put a space before it
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    if (!(*limits)->allows(tokens[i])) return false;
    (*limits)->accept(tokens[i]);
  }
  return true;
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
    // Neither words before the call, nor arguments that the schema doesn't have, nor a second call.
    CHECK_FALSE(allowed(*model, plan, "Well"));
    CHECK_FALSE(allowed(*model, plan, "<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"no\""));
    CHECK_FALSE(
        allowed(*model, plan, "<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"ok\": 1"));
    CHECK_FALSE(allowed(*model, plan, call + "\n<tool_call>"));
    CHECK_FALSE(allowed(*model, plan, call + "<tool_call>"));
    r.root.setParallelToolCalls(true);
    CHECK(allowed(*model, rendered(*model, r).plan, call + "\n" + call));
    // A function that is named is called once.
    r.root.setToolChoice(msg::ToolChoice::FUNCTION);
    r.root.setToolName("pick");
    CHECK(allowed(*model, rendered(*model, r).plan, call));
    CHECK_FALSE(allowed(*model, rendered(*model, r).plan, call + "\n" + call));
  }
}

}  // namespace
}  // namespace troupe::text
