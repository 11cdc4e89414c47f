#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::gguf {

/// What the reader of an answer needs to know; travels inside `output_plan::parser_json`.
struct parser_spec {
  int format = 0;             ///< llama.cpp's common_chat_format
  std::string parser;         ///< its saved parser
  bool tool_calls = false;    ///< the answer may hold some
  std::uint64_t id_seed = 0;  ///< ids of tool calls follow from it, so that a failover repeats them
};

/// Where a lazy grammar begins to act; travels inside `output_plan::grammar_triggers_json`.
struct grammar_triggers {
  std::vector<std::string> patterns;  ///< regular expressions over the answer so far
  std::vector<std::int32_t> tokens;
};

std::string to_json(const parser_spec& spec);
std::string to_json(const grammar_triggers& triggers);
/// Both throw std::exception when the text is not what the functions above write.
parser_spec parser_spec_from_json(const std::string& text);
grammar_triggers grammar_triggers_from_json(const std::string& text);

}  // namespace troupe::gguf
