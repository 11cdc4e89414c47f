#pragma once

#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/text_model.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace troupe::gguf {

/// An answer is parsed again with each token, from its beginning, up to this length; what is longer
/// only after the share of what lies beyond that `parses_of_each_byte` stands for, so that the work
/// grows with an answer's length and not with its square. Its text comes in larger pieces, then: of
/// 64 KiB in pieces of about 200 bytes.
inline constexpr std::size_t parsed_at_once_bytes_max = 8U << 10U;
inline constexpr std::size_t parses_of_each_byte = 256;

/// The output stream of a plan with a parser: bytes → characters → stop strings → content,
/// reasoning and tool calls by llama.cpp's parser of the template. A tool call's name is given out
/// whole, when its arguments begin. Throws std::exception when the plan's parser is malformed.
std::unique_ptr<text::output_stream> make_chat_output(std::shared_ptr<const vocabulary> words,
                                                      const engine::output_plan& plan,
                                                      std::span<const std::string> stops);

}  // namespace troupe::gguf
