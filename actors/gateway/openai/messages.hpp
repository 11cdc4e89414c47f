#pragma once

#include "actors/gateway/openai/json_input.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::gateway::openai {

/// One message of a chat, checked. Views point into the parsed body.
struct chat_message {
  std::string_view role;
  std::string_view content;  ///< where it is one text; else see `joined`
  std::string joined;        ///< content parts in order, where there are several
  std::string_view name;
  std::string_view tool_call_id;
  std::string tool_calls_json;  ///< an assistant's calls; empty: none
  bool has_content = false;     ///< false: null or absent

  std::string_view text() const { return joined.empty() ? content : std::string_view(joined); }
};

/// Reads `messages`: roles, contents (text only), names, tool calls and their answers.
bool read_messages(checker& check, const path& at, json value, std::vector<chat_message>& out);

/// Names of functions and schemas: letters, digits, `_` and `-`.
bool check_name(checker& check, const path& at, json value, std::string_view& out);

}  // namespace troupe::gateway::openai
