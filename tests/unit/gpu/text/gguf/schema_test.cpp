// What a schema's grammar takes, and which schemas are refused because it would take too much.

#include "text_fixture.hpp"

#include "gpu/text/utf8.hpp"

namespace troupe::text {
namespace {

using namespace testing;

error refusal(const text_model& model, const std::string& schema) {
  request r{{"user", "go"}};
  set_schema(r, schema);
  auto why = render_error(model, r);
  CHECK(why.code == "invalid_schema");
  CHECK(why.parameter == "response_format.json_schema");
  CHECK(why.message.size() < 1'000);
  CHECK(is_valid_utf8(why.message));
  return why;
}

void refused(const text_model& model, const std::string& schema,
             const std::vector<const char*>& parts) {
  INFO(schema.substr(0, 300));
  const auto why = refusal(model, schema);
  for (const auto* part : parts) {
    INFO(why.message << " has no " << part);
    CHECK(why.message.find(part) != std::string::npos);
  }
}

/// Of a tool's parameters, where what no grammar holds is allowed; empty: taken.
std::string refusal_of_tool(const text_model& model, const std::string& parameters) {
  request r{{"user", "go"}};
  r.root.setToolsJson(R"([{"type":"function","function":{"name":"f","parameters":)" + parameters +
                      "}}]");
  auto out = model.render(r.root.asReader());
  return out ? std::string() : out.error().message;
}

TEST_CASE("what a schema says is held, and nothing else is taken") {
  auto model = load();
  struct row {
    const char* schema;
    std::vector<const char*> taken;
    std::vector<const char*> not_taken;
  };
  const std::vector<row> rows = {
      {R"({"type":"integer","minimum":105})",
       {"105", "199", "1050", "9999999999999999"},
       {"15", "104", "0", "-105", "05"}},
      {R"({"type":"integer","exclusiveMinimum":99})", {"100", "101"}, {"10", "99"}},
      {R"({"type":"integer","maximum":-5})", {"-5", "-12"}, {"-05", "-4", "5"}},
      {R"({"type":"integer","minimum":0})", {"0", "7"}, {"-1", "00"}},
      {R"({"type":"integer","minimum":1.5,"exclusiveMaximum":4.5})", {"2", "4"}, {"1", "5"}},
      {R"({"type":"integer","minimum":1,"exclusiveMinimum":3,"maximum":7,"exclusiveMaximum":6})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"type":"integer","minimum":-9007199254740991,"maximum":9223372036854775807})",
       {"-9007199254740991", "0"},
       {"-9007199254740992"}},
      {R"({"type":["integer","null"],"minimum":3})", {"3", "null"}, {"2"}},
      {R"({"type":"string","minimum":3,"minItems":2})", {R"("a")"}, {"3"}},
      {R"({"type":["string","null"],"enum":["a",null]})", {R"("a")", "null"}, {R"("b")"}},
      {R"({"type":"integer","const":2.0})", {"2.0"}, {"3"}},
      {R"({"anyOf":[{"type":"integer"},{"enum":[1.5]}],"type":"number","title":"t"})",
       {"4", "1.5"},
       {"2.5", R"("a")"}},
      {R"({"$ref":"#/$defs/a","type":"object","description":"d","default":null,"$defs":{"a":{"type":"object","properties":{"x":{"type":"null"}},"required":["x"]}}})",
       {R"({"x":null})"},
       {"{}"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"minItems":2,"maxItems":2})",
       {"[null,true]"},
       {"[null]", "[null,true,1]"}},
      {R"({"type":"array","minItems":2})", {"[1,2]"}, {"[1]"}},
      {R"({"type":"object","allOf":[{"$ref":"#/$defs/a"},{"properties":{"y":{"type":"boolean"}}}],"required":["y"],"$defs":{"a":{"type":"object","properties":{"x":{"type":"null"}},"required":["x"]}}})",
       {R"({"x":null,"y":true})"},
       {R"({"x":null})", "{}"}},
      {R"({"allOf":[{"$ref":"#/$defs/color"}],"default":"red","$defs":{"color":{"type":"string","enum":["red","blue"]}}})",
       {R"("red")"},
       {R"("green")", "{}"}},
      {R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]}]})", {"2", "3"}, {"1", "4", "{}"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"null"}})",
       {R"({"a":1,"bc":null})", R"({"b\"c":null})"},
       {R"({"b":1})", R"({"a":null})", R"({"\":null})", R"({"\u0061":null})"}},
      {R"({"type":"string","format":"date","description":"d"})",
       {R"("2026-01-31")"},
       {R"("2026")"}},
      {R"({"type":"string","format":"email","maxLength":3})", {R"("a@b")"}, {R"("a@bc")"}},
  };
  for (const auto& r : rows) {
    INFO(r.schema);
    check_schema(*model, r.schema, r.taken, r.not_taken);
  }
}

TEST_CASE("what the conversion would leave out of a schema is refused by name and place") {
  auto model = load();
  struct row {
    const char* schema;
    std::vector<const char*> parts;
  };
  for (
      const auto& [schema, parts] : std::initializer_list<row>{
          // Bounds of numbers, and of what has no type.
          {R"({"properties":{"a":{"type":"number","minimum":0}}})",
           {"#/properties/a ", "`minimum` of a number"}},
          {R"({"type":["number","null"],"exclusiveMaximum":1})", {"`exclusiveMaximum`"}},
          {R"({"minimum":3})", {"`minimum` without a `type`"}},
          {R"({"required":["a"]})", {"`required` without a `type`"}},
          {R"({"type":"integer","minimum":3,"exclusiveMinimum":true})", {"exclusiveMinimum"}},
          {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":4})",
           {"can't be satisfied"}},
          {R"({"type":"integer","minimum":1e17})", {"minimum 1e+17", "16 digits"}},
          // Names that are no property.
          {R"({"type":"object","properties":{"a":{}},"required":["b"]})",
           {"`required`", "`properties`"}},
          {R"({"type":"object","required":["b"]})", {"`required`"}},
          {R"({"type":"object","additionalProperties":{"type":"null"},"required":["b"]})",
           {"`required`"}},
          // What stands beside the keyword that the conversion goes by.
          {R"({"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
           {"`properties` beside `anyOf`", "each branch"}},
          {R"({"oneOf":[{"type":"null"}],"anyOf":[{"type":"string"}]})",
           {"`anyOf` beside `oneOf`"}},
          {R"({"anyOf":[{"type":"string"},{"type":"null"}],"minLength":2})",
           {"`minLength` beside `anyOf`"}},
          {R"({"type":"string","anyOf":[{"minLength":2},{"type":"string"}]})",
           {"`type` beside `anyOf`"}},
          {R"({"type":"string","anyOf":[{"type":"null"}]})", {"`type` beside `anyOf`"}},
          {R"({"$ref":"#/$defs/a","properties":{"a":{}},"$defs":{"a":{"type":"object"}}})",
           {"`properties` beside `$ref`"}},
          {R"({"$ref":"#/$defs/a","type":"string","$defs":{"a":{"type":"object"}}})",
           {"`type` beside `$ref`"}},
          {R"({"type":"string","enum":["ab","a"],"minLength":2})", {"`minLength` beside `enum`"}},
          {R"({"type":"string","enum":["a",1]})", {"`enum`", "`type`"}},
          {R"({"type":"integer","const":1.5})", {"`const`", "`type`"}},
          {R"({"const":1,"enum":[2]})", {"`enum` beside `const`"}},
          {R"({"type":"string","format":"date","maxLength":4})", {"`maxLength` beside `format`"}},
          {R"({"type":"string","format":"date","pattern":"^a$"})", {"`format` beside `pattern`"}},
          // allOf.
          {R"({"allOf":[{"type":"string"}]})", {"`allOf`"}},
          {R"({"type":"string","allOf":[{"minLength":2}]})", {"`allOf`"}},
          {R"({"type":"integer","allOf":[{"minimum":2}]})", {"`allOf`"}},
          {R"({"type":"array","allOf":[{"minItems":2}]})", {"`allOf`"}},
          {R"({"type":"object","properties":{"a":{}},"allOf":[{"properties":{"b":{}}}]})",
           {"`allOf`"}},
          {R"({"type":["object","string"],"allOf":[{"properties":{"b":{}}}]})", {"`allOf`"}},
          {R"({"allOf":[{"properties":{"a":{}}},{"enum":[1]}]})", {"`allOf`"}},
          {R"({"allOf":[{"properties":{"a":{}}},{"properties":{"a":{"type":"null"}}}]})",
           {"in common"}},
          {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
           {"`additionalProperties`"}},
          {R"({"allOf":[{"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}]})",
           {"`allOf`"}},
          {R"({"allOf":[{"properties":{"a":{}}}],"required":["b"]})", {"`required`"}},
          {R"({"allOf":[{"properties":{"a":{}}}],"minProperties":2})", {"minProperties"}},
          {R"({"allOf":[{"enum":[1]},{"enum":[2]}]})", {"no value in common"}},
          {R"({"allOf":[{"enum":[1,1]},{"type":"string"}]})", {"`allOf`"}},
          // Lists of items.
          {R"({"type":"array","prefixItems":[{"type":"null"}],"minItems":2})",
           {"`minItems`", "1 items"}},
          {R"({"type":"array","items":[{"type":"null"},{}],"maxItems":1})", {"`maxItems`"}},
          {R"({"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"string"}})",
           {"`prefixItems` beside `items`"}},
          {R"({"minItems":1})", {"`minItems` without a `type`"}},
          {R"({"type":"array","unevaluatedItems":false})", {"unevaluatedItems"}},
          // References.
          {R"({"anyOf":[{"$ref":"#/$defs/a-b"},{"$ref":"#/$defs/a_b"}],"$defs":{"a-b":{"type":"null"},"a_b":{"type":"string"}}})",
           {"a-b", "a_b"}},
          {R"({"$ref":"#/default","default":{"not":{}}})", {"#/default", "no schema"}},
          {R"({"$ref":"#/enum/0","anyOf":[{"enum":[{"not":{}}]}]})", {"no schema"}},
          {R"({"$ref":"#/properties","properties":{"not":{"type":"null"}}})", {"no schema"}},
          // Names that others must differ from.
          {R"({"properties":{"^a":{"type":"null"}},"additionalProperties":true})",
           {"`additionalProperties`"}},
      })
    refused(*model, schema, parts);
}

TEST_CASE("a type is an alternative, and there once") {
  auto model = load();
  refused(*model, R"({"type":["object","object"],"properties":{"a":{}}})", {"object", "once"});
  std::string types, values;
  for (int i = 0; i < 5'000; ++i) types += R"("object",)";
  CHECK_FALSE(
      refusal_of_tool(*model, R"({"properties":{"a":{"type":[)" + types + R"("null"]}}})").empty());
  for (int i = 0; i < 501; ++i) values += (i > 0 ? "," : "") + std::to_string(i);
  refused(*model, R"({"type":["integer","null"],"enum":[)" + values + "]}", {"alternatives"});
}

TEST_CASE("what is required counts as such only if it is a property") {
  auto model = load();
  std::string names, list, twice;
  for (int i = 0; i < 150; ++i) {
    names += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":{}";
    list += (i > 0 ? ",\"x" : "\"x") + std::to_string(i) + "\"";
    twice += std::string(i > 0 ? "," : "") + R"("p0")";
  }
  const auto object = [&](const std::string& required) {
    return R"({"type":"object","properties":{)" + names + "},\"required\":[" + required + "]}";
  };
  refused(*model, object(list), {"150 optional"});
  refused(*model, object(twice), {"149 optional"});
  CHECK(refusal_of_tool(*model, object(list)).find("150 optional") != std::string::npos);
  // What alternatives within `allOf` require is optional to the conversion.
  std::string all;
  for (int i = 0; i < 150; ++i) all += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\"";
  CHECK(refusal_of_tool(*model, object(all)).empty());
  CHECK(refusal_of_tool(*model, R"({"allOf":[{"anyOf":[)" + object(all) + "]}]}")
            .find("150 optional") != std::string::npos);
}

TEST_CASE("what the conversion would follow too far, or again and again, is refused") {
  auto model = load();
  const auto refused_both = [&](const std::string& schema, const char* part) {
    refused(*model, schema, {part});
    CHECK(refusal_of_tool(*model, schema).find(part) != std::string::npos);
  };
  const auto defined = [](const std::string& definitions) {
    return R"({"$ref":"#/$defs/a0","$defs":{)" + definitions + "}}";
  };
  // A list within a list within a list, each written apart.
  const auto chain = [&](int length) {
    std::string out;
    for (int i = 0; i < length; ++i)
      out += "\"a" + std::to_string(i) + R"(":{"items":{"$ref":"#/$defs/a)" +
             std::to_string(i + 1) + "\"}},";
    return defined(out + "\"a" + std::to_string(length) + R"(":{"type":"null"})");
  };
  refused_both(chain(4'000), "through more than");
  CHECK(refusal_of_tool(*model, chain(100)).empty());
  // A list of itself is followed once; `allOf` is written out wherever it is met.
  CHECK(refusal_of_tool(*model, defined(R"("a0":{"items":{"$ref":"#/$defs/a0"}})")).empty());
  refused_both(defined(R"("a0":{"properties":{"a":{"allOf":[{"$ref":"#/$defs/a0"}]}}})"),
               "through more than");
  std::string doubled;
  for (int i = 0; i < 40; ++i) {
    const auto next = R"({"$ref":"#/$defs/a)" + std::to_string(i + 1) + "\"}";
    doubled += "\"a" + std::to_string(i) + R"(":{"properties":{"p":{"allOf":[)" + next + "," +
               next + "]}}},";
  }
  refused_both(defined(doubled + R"("a40":{"type":"null"})"), "parts");
  std::string nested = R"({"properties":{"a":{"type":"null"}}})";
  for (int i = 0; i < 25; ++i) nested = R"({"type":["object","string"],"allOf":[)" + nested + "]}";
  refused_both(nested, "list of types");
  // Behind what is no schema, nothing has been looked at.
  refused_both(R"({"$ref":"#/examples/0","examples":[{"type":"null"}]})", "no schema");
}

TEST_CASE("a refusal names a place in whole characters") {
  auto model = load();
  std::string schema = R"({"not":{}})";
  for (int i = 0; i < 4; ++i)
    schema = R"({"properties":{")" + std::string(1, static_cast<char>('a' + i)) +
             "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
             "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\":" +
             schema + "}}";
  CHECK(is_valid_utf8(refusal(*model, schema).message));
  CHECK(is_valid_utf8(refusal(*model, R"({"properties":{"x)" + schema.substr(16)).message));
  CHECK(
      is_valid_utf8(refusal(*model, "{\"type\":\"string\",\"pattern\":\"^(?\u00e9)$\"}").message));
}

}  // namespace
}  // namespace troupe::text
