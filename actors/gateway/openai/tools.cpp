#include "actors/gateway/openai/tools.hpp"

#include "actors/gateway/openai/messages.hpp"
#include "actors/gateway/openai/schema_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <unordered_set>

namespace troupe::gateway::openai {

namespace {

using names = std::unordered_set<std::string_view>;

bool get(simdjson::dom::object members, std::string_view key, json& out) {
  return members.at_key(key).get(out) == simdjson::SUCCESS && !out.is_null();
}

bool missing(checker& c, const path& at) {
  return c.refuse(at, "missing_required_parameter",
                  fmt::format("Missing required parameter: '{}'.", at.text()));
}

bool only(checker& c, const path& at, simdjson::dom::object members,
          std::initializer_list<std::string_view> known) {
  for (auto [key, ignored] : members)
    if (std::find(known.begin(), known.end(), key) == known.end())
      return c.refuse(path{at, key}, "unknown_parameter",
                      fmt::format("Unknown parameter: '{}'.", path{at, key}.text()));
  return true;
}

bool type_is(checker& c, const path& at, simdjson::dom::object members, std::string_view wanted) {
  const path where{at, "type"};
  json value;
  std::string_view type;
  if (!get(members, "type", value)) return missing(c, where);
  if (!c.text(where, value, type)) return false;
  return type == wanted || c.refuse(where, "unsupported_parameter",
                                    fmt::format("'{}' must be '{}'.", where.text(), wanted));
}

bool read_function(checker& c, const path& at, json v, names& functions) {
  simdjson::dom::object members;
  if (!c.object(at, v, members) ||
      !only(c, at, members, {"name", "description", "parameters", "strict"}))
    return false;
  json value;
  std::string_view name;
  std::string_view description;
  bool strict = false;
  if (!get(members, "name", value)) return missing(c, path{at, "name"});
  if (!check_name(c, path{at, "name"}, value, name)) return false;
  if (!functions.insert(name).second)
    return c.refuse(path{at, "name"}, "invalid_value",
                    fmt::format("'{}.name' names a function that is given already.", at.text()));
  if (get(members, "description", value) && !c.text(path{at, "description"}, value, description))
    return false;
  if (get(members, "strict", value) && !c.boolean(path{at, "strict"}, value, strict)) return false;
  if (get(members, "parameters", value)) {
    const path where{at, "parameters"};
    simdjson::dom::object schema;
    if (!c.object(where, value, schema) || !check_whole_schema(c, where, value)) return false;
  }
  return true;
}

bool read_tools(checker& c, const path& at, json v, names& functions, answer_shape& out) {
  simdjson::dom::array list;
  if (!c.array(at, v, list)) return false;
  if (list.size() == 0 || list.size() > tools_max)
    return c.refuse(at, "invalid_value",
                    fmt::format("'tools' must have from 1 to {} tools.", tools_max));
  std::size_t i = 0;
  for (json tool : list) {
    const path where{at, i++};
    simdjson::dom::object members;
    json function;
    if (!c.object(where, tool, members) || !type_is(c, where, members, "function") ||
        !only(c, where, members, {"type", "function"}))
      return false;
    if (!get(members, "function", function)) return missing(c, path{where, "function"});
    if (!read_function(c, path{where, "function"}, function, functions)) return false;
  }
  out.tools_json = simdjson::minify(v);
  return true;
}

bool read_choice(checker& c, const path& at, json v, const names& functions, answer_shape& out) {
  std::string_view word;
  if (v.get_string().get(word) == simdjson::SUCCESS) {
    if (word == "auto")
      out.choice = msg::ToolChoice::AUTO;
    else if (word == "none")
      out.choice = msg::ToolChoice::NONE;
    else if (word == "required")
      out.choice = msg::ToolChoice::REQUIRED;
    else
      return c.refuse(at, "invalid_value",
                      "'tool_choice' must be 'auto', 'none', 'required' or a function.");
    return true;
  }
  simdjson::dom::object members;
  if (v.get_object().get(members) != simdjson::SUCCESS)
    return c.wrong_type(at, "a string or an object", v);
  json function;
  json name;
  const path where{at, "function"};
  if (!type_is(c, at, members, "function") || !only(c, at, members, {"type", "function"}))
    return false;
  if (!get(members, "function", function)) return missing(c, where);
  simdjson::dom::object inner;
  if (!c.object(where, function, inner) || !only(c, where, inner, {"name"})) return false;
  if (!get(inner, "name", name)) return missing(c, path{where, "name"});
  if (!c.text(path{where, "name"}, name, out.function)) return false;
  if (!functions.contains(out.function))
    return c.refuse(path{where, "name"}, "invalid_value",
                    "'tool_choice.function.name' is not among 'tools'.");
  out.choice = msg::ToolChoice::FUNCTION;
  return true;
}

bool read_json_schema(checker& c, const path& at, json v, answer_shape& out) {
  simdjson::dom::object members;
  if (!c.object(at, v, members) ||
      !only(c, at, members, {"name", "description", "schema", "strict"}))
    return false;
  json value;
  std::string_view text;
  bool strict = false;
  if (!get(members, "name", value)) return missing(c, path{at, "name"});
  if (!check_name(c, path{at, "name"}, value, text)) return false;
  if (get(members, "description", value) && !c.text(path{at, "description"}, value, text))
    return false;
  if (get(members, "strict", value) && !c.boolean(path{at, "strict"}, value, strict)) return false;
  const path where{at, "schema"};
  if (!get(members, "schema", value)) return missing(c, where);
  simdjson::dom::object schema;
  if (!c.object(where, value, schema) || !check_whole_schema(c, where, value)) return false;
  out.form = answer_shape::format::json_schema;
  out.schema_json = simdjson::minify(value);
  return true;
}

bool read_format(checker& c, const path& at, json v, answer_shape& out) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  json value;
  std::string_view type;
  if (!get(members, "type", value)) return missing(c, path{at, "type"});
  if (!c.text(path{at, "type"}, value, type)) return false;
  if (type == "text") return only(c, at, members, {"type"});
  if (type == "json_object") {
    out.form = answer_shape::format::json_object;
    return only(c, at, members, {"type"});
  }
  if (type != "json_schema")
    return c.refuse(path{at, "type"}, "invalid_value",
                    "'response_format.type' must be 'text', 'json_object' or 'json_schema'.");
  if (!only(c, at, members, {"type", "json_schema"})) return false;
  const path where{at, "json_schema"};
  return get(members, "json_schema", value) ? read_json_schema(c, where, value, out)
                                            : missing(c, where);
}

}  // namespace

bool read_answer_shape(checker& c, const path& root, const params& p, answer_shape& out) {
  names functions;
  if (p.tools && !read_tools(c, path{root, "tools"}, *p.tools, functions, out)) return false;
  for (const auto* name : {"tool_choice", "parallel_tool_calls"}) {
    const bool given = name == std::string_view("tool_choice") ? p.tool_choice.has_value()
                                                               : p.parallel_tool_calls.has_value();
    if (given && !p.tools)
      return c.refuse(path{root, name}, "invalid_value",
                      fmt::format("'{}' is only allowed when 'tools' are given.", name));
  }
  if (p.tool_choice && !read_choice(c, path{root, "tool_choice"}, *p.tool_choice, functions, out))
    return false;
  out.parallel = p.parallel_tool_calls.value_or(true);
  return !p.response_format ||
         read_format(c, path{root, "response_format"}, *p.response_format, out);
}

}  // namespace troupe::gateway::openai
