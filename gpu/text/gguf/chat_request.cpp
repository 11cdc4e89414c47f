#include "gpu/text/gguf/chat_request.hpp"

#include <fmt/format.h>
#include <json.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace troupe::gguf {
namespace {

std::string to_string(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

std::vector<common_chat_tool_call> read_calls(const std::string& json) {
  std::vector<common_chat_tool_call> out;
  for (const auto& call : common_json::parse(json)) {
    const auto& function = call.at("function");
    const auto& arguments = function.at("arguments");
    out.push_back({function.at("name").get<std::string>(),
                   arguments.is_string() ? arguments.get<std::string>() : arguments.dump(),
                   call.value("id", "")});
  }
  return out;
}

expected<common_chat_msg> read_message(msg::Message::Reader message, std::size_t index) {
  common_chat_msg out;
  out.role = to_string(message.getRole());
  out.content = to_string(message.getContent());
  out.tool_name = to_string(message.getName());
  out.tool_call_id = to_string(message.getToolCallId());
  if (message.getToolCallsJson().size() == 0) return out;
  try {
    out.tool_calls = read_calls(to_string(message.getToolCallsJson()));
  } catch (const std::exception& e) {
    return error{"invalid_messages",
                 fmt::format("the tool calls of message {} cannot be read: {}", index, e.what()),
                 fmt::format("messages[{}].tool_calls", index)};
  }
  return out;
}

expected<void> read_tools(msg::Completion::Reader request, common_chat_templates_inputs& out) {
  if (request.getToolsJson().size() == 0) {
    if (request.getToolChoice() == msg::ToolChoice::REQUIRED ||
        request.getToolChoice() == msg::ToolChoice::FUNCTION)
      return error{"invalid_tool_choice", "a tool is to be called, but there are no `tools`",
                   "tool_choice"};
    return ok;
  }
  try {
    out.tools = common_chat_tools_parse_oaicompat(
        common_json::parse(to_string(request.getToolsJson())));
    for (const auto& tool : out.tools) common_json::parse(tool.parameters);
  } catch (const std::exception& e) {
    return error{"invalid_tools", e.what(), "tools"};
  }
  switch (request.getToolChoice()) {
  case msg::ToolChoice::AUTO:
    out.tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    break;
  case msg::ToolChoice::NONE:
    out.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    break;
  case msg::ToolChoice::REQUIRED:
    out.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    break;
  case msg::ToolChoice::FUNCTION: {
    const auto name = to_string(request.getToolName());
    std::erase_if(out.tools, [&](const common_chat_tool& tool) { return tool.name != name; });
    if (out.tools.empty())
      return error{"invalid_tool_choice",
                   fmt::format("there is no tool \"{}\" among `tools`", name),
                   "tool_choice.function.name"};
    out.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    break;
  }
  }
  // Who names a function means one call of it.
  out.parallel_tool_calls = request.getParallelToolCalls() &&
                            request.getToolChoice() != msg::ToolChoice::FUNCTION;
  return ok;
}

expected<void> read_template_arguments(const std::string& json, common_chat_templates_inputs& out) {
  if (json.empty()) return ok;
  const auto refuse = [](const std::string& why) {
    return error{"invalid_template_arguments", why, "chat_template_kwargs"};
  };
  try {
    const auto arguments = common_json::parse(json);
    if (!arguments.is_object()) return refuse("the template's arguments are not a JSON object");
    for (const auto& [key, value] : arguments.items()) {
      out.chat_template_kwargs[key] = value.dump();
      if (key != "enable_thinking") continue;
      if (!value.is_boolean()) return refuse("`enable_thinking` is true or false");
      out.enable_thinking = value.get<bool>();
    }
  } catch (const std::exception& e) {
    return refuse(e.what());
  }
  return ok;
}

}  // namespace

expected<common_chat_templates_inputs> chat_inputs(msg::Completion::Reader request) {
  common_chat_templates_inputs out;
  out.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  std::size_t index = 0;
  for (const auto message : request.getPrompt().getMessages()) {
    auto read = read_message(message, index++);
    if (!read) return read.error();
    out.messages.push_back(std::move(*read));
  }
  if (out.messages.empty()) return error{"invalid_messages", "there are no messages", "messages"};
  if (auto done = read_tools(request, out); !done) return done.error();
  const auto arguments = to_string(request.getChatTemplateKwargsJson());
  if (auto done = read_template_arguments(arguments, out); !done) return done.error();
  return out;
}

}  // namespace troupe::gguf
