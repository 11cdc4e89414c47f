#include "actors/gateway/openai/messages.hpp"

#include "actors/gateway/openai/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

namespace troupe::gateway::openai {

namespace {

constexpr std::array<std::string_view, 5> roles = {"system", "developer", "user", "assistant",
                                                   "tool"};

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// Spaces and control characters of ASCII, and what most templates' own marks begin or end with.
bool ends_participant(char c) {
  static constexpr std::string_view marks = "<>|[]\\/";
  return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' ||
         marks.find(c) != std::string_view::npos;
}

bool unknown(checker& c, const path& at) {
  return c.refuse(at, "unknown_parameter", fmt::format("Unknown parameter: '{}'.", at.text()));
}

bool missing(checker& c, const path& at) {
  return c.refuse(at, "missing_required_parameter",
                  fmt::format("Missing required parameter: '{}'.", at.text()));
}

bool read_part(checker& c, const path& at, json v, std::string& out) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  bool has_type = false;
  bool has_text = false;
  std::string_view type;
  std::string_view text;
  // The type first: of an image it should be said that images aren't supported, not that
  // `image_url` is unknown.
  json type_value;
  if (members.at_key("type").get(type_value) == simdjson::SUCCESS) {
    const path where{at, "type"};
    if (!c.text(where, type_value, type)) return false;
    if (type != "text")
      return c.refuse(
          where, "unsupported_parameter",
          fmt::format("'{}' must be 'text': other content is not supported here.", where.text()));
    has_type = true;
  }
  for (auto [key, value] : members) {
    const path where{at, key};
    if (key == "type") continue;
    if (key != "text") return unknown(c, where);
    if (!c.text(where, value, text)) return false;
    has_text = true;
  }
  if (!has_type) return missing(c, path{at, "type"});
  if (!has_text) return missing(c, path{at, "text"});
  out += text;
  return true;
}

bool read_content(checker& c, const path& at, json v, chat_message& m) {
  if (v.is_null()) return true;
  if (v.get_string().get(m.content) == simdjson::SUCCESS) {
    m.has_content = true;
    return true;
  }
  simdjson::dom::array parts;
  if (v.get_array().get(parts) != simdjson::SUCCESS)
    return c.wrong_type(at, "a string or an array of content parts", v);
  if (parts.size() == 0)
    return c.refuse(at, "invalid_value", fmt::format("'{}' has no parts.", at.text()));
  std::size_t i = 0;
  for (json part : parts) {
    if (i == content_parts_max)
      return c.refuse(
          at, "invalid_value",
          fmt::format("'{}' must have at most {} parts.", at.text(), content_parts_max));
    if (!read_part(c, path{at, i++}, part, m.joined)) return false;
  }
  m.has_content = true;
  return true;
}

bool read_function_of_call(checker& c, const path& at, json v) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  std::string_view name;
  std::string_view arguments;
  json value;
  if (members.at_key("name").get(value) != simdjson::SUCCESS) return missing(c, path{at, "name"});
  if (!check_name(c, path{at, "name"}, value, name)) return false;
  if (members.at_key("arguments").get(value) != simdjson::SUCCESS)
    return missing(c, path{at, "arguments"});
  if (!c.text(path{at, "arguments"}, value, arguments)) return false;
  for (auto [key, ignored] : members)
    if (key != "name" && key != "arguments") return unknown(c, path{at, key});
  return true;
}

bool read_tool_call(checker& c, const path& at, json v,
                    std::unordered_set<std::string_view>& call_ids) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  std::string_view id;
  std::string_view type;
  json value;
  if (members.at_key("id").get(value) != simdjson::SUCCESS) return missing(c, path{at, "id"});
  if (!c.text(path{at, "id"}, value, id)) return false;
  if (members.at_key("type").get(value) != simdjson::SUCCESS) return missing(c, path{at, "type"});
  if (!c.text(path{at, "type"}, value, type)) return false;
  if (type != "function")
    return c.refuse(path{at, "type"}, "unsupported_parameter",
                    fmt::format("'{}.type' must be 'function'.", at.text()));
  if (members.at_key("function").get(value) != simdjson::SUCCESS)
    return missing(c, path{at, "function"});
  if (!read_function_of_call(c, path{at, "function"}, value)) return false;
  for (auto [key, ignored] : members)
    if (key != "id" && key != "type" && key != "function" && key != "index")
      return unknown(c, path{at, key});
  call_ids.insert(id);
  return true;
}

bool read_tool_calls(checker& c, const path& at, json v, chat_message& m,
                     std::unordered_set<std::string_view>& call_ids) {
  simdjson::dom::array calls;
  if (!c.array(at, v, calls)) return false;
  if (calls.size() == 0 || calls.size() > tool_calls_max)
    return c.refuse(at, "invalid_value",
                    fmt::format("'{}' must have from 1 to {} calls.", at.text(), tool_calls_max));
  std::size_t i = 0;
  for (json call : calls)
    if (!read_tool_call(c, path{at, i++}, call, call_ids)) return false;
  m.tool_calls_json = simdjson::minify(v);
  return true;
}

// Fields that the official client sends back with an earlier answer: empty they mean nothing.
bool empty_of_an_answer(std::string_view key, json v) {
  if (key == "annotations") return v.is_array() && simdjson::dom::array(v.get_array()).size() == 0;
  return false;
}

/// Who speaks, in any language.
bool check_participant(checker& c, const path& at, json v, std::string_view& out) {
  if (!c.text(at, v, out)) return false;
  if (out.empty() || out.size() > name_bytes_max ||
      std::any_of(out.begin(), out.end(), ends_participant))
    return c.refuse(
        at, "invalid_value",
        fmt::format("'{}' must have from 1 to {} bytes, without spaces and any of < > | [ ] \\ /.",
                    at.text(), name_bytes_max));
  return true;
}

bool read_member(checker& c, const path& at, std::string_view key, json v, chat_message& m,
                 std::unordered_set<std::string_view>& call_ids) {
  if (key == "role") return true;  // read before
  if (key == "content") return read_content(c, at, v, m);
  if (key == "name")
    return v.is_null() ||
           (m.role == "tool" ? check_name(c, at, v, m.name) : check_participant(c, at, v, m.name));
  if (key == "tool_call_id" && m.role == "tool") return c.text(at, v, m.tool_call_id);
  if (m.role == "assistant") {
    if (key == "tool_calls") return v.is_null() || read_tool_calls(c, at, v, m, call_ids);
    // Clients send our own answers back. What was thought in an earlier turn is not shown to the
    // model again: reasoning models' templates leave it out, too.
    std::string_view thought;
    if (key == "reasoning_content") return v.is_null() || c.text(at, v, thought);
    if (key == "refusal" || key == "audio" || key == "function_call" || key == "annotations")
      return v.is_null() || empty_of_an_answer(key, v) ||
             c.refuse(at, "unsupported_parameter",
                      fmt::format("'{}' is not supported by this server.", at.text()));
  }
  return unknown(c, at);
}

bool read_message(checker& c, const path& at, json v, chat_message& m,
                  std::unordered_set<std::string_view>& call_ids) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  json role;
  if (members.at_key("role").get(role) != simdjson::SUCCESS) return missing(c, path{at, "role"});
  if (!c.text(path{at, "role"}, role, m.role)) return false;
  if (std::find(roles.begin(), roles.end(), m.role) == roles.end())
    return c.refuse(
        path{at, "role"}, "invalid_value",
        fmt::format("'{}.role' must be one of system, developer, user, assistant, tool.",
                    at.text()));
  for (auto [key, value] : members)
    if (!read_member(c, path{at, key}, key, value, m, call_ids)) return false;
  if (!m.has_content && (m.role != "assistant" || m.tool_calls_json.empty()))
    return missing(c, path{at, "content"});
  if (m.role == "tool") {
    const path where{at, "tool_call_id"};
    if (m.tool_call_id.empty()) return missing(c, where);
    if (!call_ids.contains(m.tool_call_id))
      return c.refuse(
          where, "invalid_value",
          fmt::format("'{}' answers no tool call of an earlier message.", where.text()));
  }
  return true;
}

}  // namespace

bool check_name(checker& c, const path& at, json v, std::string_view& out) {
  if (!c.text(at, v, out)) return false;
  if (out.empty() || out.size() > name_bytes_max ||
      !std::all_of(out.begin(), out.end(), name_character))
    return c.refuse(at, "invalid_value",
                    fmt::format("'{}' must have from 1 to {} letters, digits, '_' and '-'.",
                                at.text(), name_bytes_max));
  return true;
}

bool read_messages(checker& c, const path& at, json v, std::vector<chat_message>& out) {
  simdjson::dom::array list;
  if (!c.array(at, v, list)) return false;
  std::unordered_set<std::string_view> call_ids;
  for (json message : list) {
    if (out.size() == messages_max)
      return c.refuse(at, "invalid_value",
                      fmt::format("'messages' must have at most {} messages.", messages_max));
    const path where{at, out.size()};
    if (!read_message(c, where, message, out.emplace_back(), call_ids)) return false;
  }
  return !out.empty() ||
         c.refuse(at, "invalid_value", "'messages' must have at least one message.");
}

}  // namespace troupe::gateway::openai
