#pragma once

#include "actors/gateway/openai/params.hpp"
#include "messages/completion.capnp.h"

#include <string>
#include <string_view>

namespace troupe::gateway::openai {

/// How an answer is shaped: tools that it may call, and the form of its text. Views point into the
/// parsed body.
struct answer_shape {
  std::string tools_json;  ///< as the client sent it, without white space; empty: none
  msg::ToolChoice choice = msg::ToolChoice::AUTO;
  std::string_view function;  ///< with choice `function`
  bool parallel = true;
  enum class format : std::uint8_t { text, json_object, json_schema };
  format form = format::text;
  std::string schema_json;
};

/// Reads `tools`, `tool_choice`, `parallel_tool_calls` and `response_format`.
bool read_answer_shape(checker& check, const path& root, const params& p, answer_shape& out);

}  // namespace troupe::gateway::openai
