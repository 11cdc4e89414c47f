#include "actors/gateway/openai/schema_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

namespace troupe::gateway::openai {

namespace {

constexpr std::array<std::string_view, 7> type_names = {"string", "number", "integer", "boolean",
                                                        "object", "array",  "null"};

bool check_schema(checker& c, const path& at, json schema);

bool check_widths(checker& c, const path& at, json v) {
  if (v.is_array()) {
    std::size_t i = 0;
    for (json value : v.get_array())
      if (!check_widths(c, path{at, i++}, value)) return false;
  }
  if (!v.is_object()) return true;
  std::size_t members = 0;
  for (auto [key, value] : v.get_object()) {
    if (++members > schema_members_max)
      return c.refuse(at, "invalid_json_schema",
                      fmt::format("'{}' has more than {} members.", at.text(), schema_members_max));
    if (!check_widths(c, path{at, key}, value)) return false;
  }
  return true;
}

bool check_type_name(checker& c, const path& at, json v) {
  std::string_view name;
  if (!c.text(at, v, name)) return false;
  return std::find(type_names.begin(), type_names.end(), name) != type_names.end() ||
         c.refuse(at, "invalid_json_schema",
                  fmt::format("'{}' must be one of string, number, integer, boolean, object, "
                              "array, null.",
                              at.text()));
}

bool check_type(checker& c, const path& at, json v) {
  if (v.is_string()) return check_type_name(c, at, v);
  simdjson::dom::array names;
  if (!c.array(at, v, names)) return false;
  if (names.size() == 0)
    return c.refuse(at, "invalid_json_schema", fmt::format("'{}' names no type.", at.text()));
  std::vector<std::string_view> seen;
  for (json name : names) {
    const path where{at, seen.size()};
    if (!check_type_name(c, where, name)) return false;
    std::string_view text;
    if (!c.text(where, name, text)) return false;
    if (std::find(seen.begin(), seen.end(), text) != seen.end())
      return c.refuse(where, "invalid_json_schema",
                      fmt::format("'{}' names '{}' once more: each type once.", at.text(), text));
    seen.push_back(text);
  }
  return true;
}

bool check_map(checker& c, const path& at, json v) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  for (auto [key, value] : members)
    if (!check_schema(c, path{at, key}, value)) return false;
  return true;
}

bool check_list(checker& c, const path& at, json v) {
  simdjson::dom::array list;
  if (!c.array(at, v, list)) return false;
  if (list.size() == 0)
    return c.refuse(at, "invalid_json_schema", fmt::format("'{}' must not be empty.", at.text()));
  std::size_t i = 0;
  for (json value : list)
    if (!check_schema(c, path{at, i++}, value)) return false;
  return true;
}

bool check_required(checker& c, const path& at, json v) {
  simdjson::dom::array names;
  if (!c.array(at, v, names)) return false;
  std::size_t i = 0;
  for (json name : names) {
    std::string_view ignored;
    if (!c.text(path{at, i++}, name, ignored)) return false;
  }
  return true;
}

bool check_reference(checker& c, const path& at, json v) {
  std::string_view target;
  if (!c.text(at, v, target)) return false;
  return target.starts_with('#') ||
         c.refuse(at, "invalid_json_schema",
                  fmt::format("'{}' must begin with '#': only references within the schema are "
                              "followed.",
                              at.text()));
}

bool check_keyword(checker& c, const path& at, std::string_view key, json v) {
  if (key == "type") return check_type(c, at, v);
  if (key == "properties" || key == "$defs" || key == "definitions" || key == "patternProperties")
    return check_map(c, at, v);
  if (key == "anyOf" || key == "oneOf" || key == "allOf" || key == "prefixItems")
    return check_list(c, at, v);
  if (key == "items") return v.is_array() ? check_list(c, at, v) : check_schema(c, at, v);
  if (key == "additionalProperties" || key == "not") return check_schema(c, at, v);
  if (key == "required") return check_required(c, at, v);
  if (key == "$ref") return check_reference(c, at, v);
  if (key == "enum") {
    simdjson::dom::array values;
    if (!c.array(at, v, values)) return false;
    return values.size() > 0 ||
           c.refuse(at, "invalid_json_schema", fmt::format("'{}' allows no value.", at.text()));
  }
  if (key == "pattern" || key == "format" || key == "title" || key == "description") {
    std::string_view ignored;
    return c.text(at, v, ignored);
  }
  return true;
}

bool check_range(checker& c, const path& at, simdjson::dom::object schema, const char* low,
                 const char* high, bool counts) {
  json value;
  double from = 0;
  double to = 0;
  bool has_from = false;
  bool has_to = false;
  for (auto [key, number, has] :
       {std::tuple{low, &from, &has_from}, std::tuple{high, &to, &has_to}}) {
    if (schema.at_key(key).get(value) != simdjson::SUCCESS) continue;
    const path where{at, key};
    if (value.get_double().get(*number) != simdjson::SUCCESS)
      return c.wrong_type(where, "a number", value);
    if (counts && (*number < 0 || *number != std::floor(*number)))
      return c.refuse(where, "invalid_json_schema",
                      fmt::format("'{}' must be a count.", where.text()));
    *has = true;
  }
  return !has_from || !has_to || from <= to ||
         c.refuse(path{at, low}, "invalid_json_schema",
                  fmt::format("No value can satisfy '{}': {} is above {}.", at.text(), low, high));
}

bool check_schema(checker& c, const path& at, json schema) {
  if (schema.is_bool()) return true;  // "anything" and "nothing" are schemas, too
  simdjson::dom::object members;
  if (!c.object(at, schema, members)) return false;
  for (auto [key, value] : members)
    if (!check_keyword(c, path{at, key}, key, value)) return false;
  return check_range(c, at, members, "minimum", "maximum", false) &&
         check_range(c, at, members, "minLength", "maxLength", true) &&
         check_range(c, at, members, "minItems", "maxItems", true);
}

}  // namespace

bool check_whole_schema(checker& c, const path& at, json schema) {
  return check_widths(c, at, schema) && check_schema(c, at, schema);
}

}  // namespace troupe::gateway::openai
