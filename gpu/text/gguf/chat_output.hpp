#pragma once

#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/text_model.hpp"

#include <memory>
#include <span>
#include <string>

namespace troupe::gguf {

/// The output stream of a plan with a parser: bytes → characters → stop strings → content,
/// reasoning and tool calls by llama.cpp's parser of the template. A tool call's name is given out
/// whole, when its arguments begin. Throws std::exception when the plan's parser is malformed.
std::unique_ptr<text::output_stream> make_chat_output(std::shared_ptr<const vocabulary> words,
                                                      const engine::output_plan& plan,
                                                      std::span<const std::string> stops);

}  // namespace troupe::gguf
