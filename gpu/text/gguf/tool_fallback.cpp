#include "gpu/text/gguf/tool_fallback.hpp"

#include <chat.h>
#include <json.h>

#include <string>
#include <utility>

namespace troupe::gguf {
namespace {

std::string instructions(const common_chat_templates_inputs& inputs) {
  std::string out = "You can call these functions:\n<tools>";
  for (const auto& tool : common_chat_tools_to_json_oaicompat(inputs.tools))
    out += "\n" + tool.dump();
  out += "\n</tools>\nTo call one, answer with its name and arguments as JSON within tags:\n"
         "<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>\n";
  if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) out += "You must call one now.\n";
  if (!inputs.parallel_tool_calls) out += "Call at most one.\n";
  return out;
}

}  // namespace

void describe_tools(common_chat_templates_inputs& inputs) {
  for (auto& message : inputs.messages) {
    for (const auto& call : message.tool_calls) {
      if (!message.content.empty()) message.content += '\n';
      message.content += "<tool_call>\n{\"name\": " + common_json::make(call.name).dump() +
                         ", \"arguments\": " + (call.arguments.empty() ? "{}" : call.arguments) +
                         "}\n</tool_call>";
    }
    message.tool_calls.clear();
    if (message.role != "tool") continue;
    message.role = "user";
    message.content = "<tool_response>\n" + message.content + "\n</tool_response>";
    message.tool_call_id.clear();
    message.tool_name.clear();
  }
  if (inputs.tools.empty() || inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_NONE) {
    inputs.tools.clear();
    return;
  }
  auto text = instructions(inputs);
  inputs.tools.clear();
  inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
  if (!inputs.messages.empty() &&
      (inputs.messages.front().role == "system" || inputs.messages.front().role == "developer")) {
    inputs.messages.front().content += "\n\n" + text;
    return;
  }
  common_chat_msg system;
  system.role = "system";
  system.content = std::move(text);
  inputs.messages.insert(inputs.messages.begin(), std::move(system));
}

}  // namespace troupe::gguf
