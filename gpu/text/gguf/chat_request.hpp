#pragma once

#include "messages/base/expected.hpp"
#include "messages/completion.capnp.h"

#include <chat.h>

namespace troupe::gguf {

/// A chat completion in llama.cpp's terms: messages, tools (with `tool_choice` a function: only
/// that one, required), template arguments. Errors name the request's parameter:
/// `invalid_messages`, `invalid_tools`, `invalid_tool_choice`, `invalid_template_arguments`.
expected<common_chat_templates_inputs> chat_inputs(msg::Completion::Reader request);

}  // namespace troupe::gguf
