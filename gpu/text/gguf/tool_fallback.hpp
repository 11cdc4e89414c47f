#pragma once

struct common_chat_templates_inputs;

namespace troupe::gguf {

/// Puts tools, calls and their results into the text of ordinary turns, for templates that have no
/// words for them: the tools go to the system message (unless `tool_choice` is none), an
/// assistant's calls behind its text, and results into user turns.
void describe_tools(common_chat_templates_inputs& inputs);

}  // namespace troupe::gguf
