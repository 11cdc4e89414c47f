#include "gpu/text/gguf/plan_json.hpp"

#include <json.h>

namespace troupe::gguf {

std::string to_json(const parser_spec& spec) {
  auto out = common_json::object();
  out["format"] = spec.format;
  out["parser"] = spec.parser;
  out["tool_calls"] = spec.tool_calls;
  // As text: JSON numbers are doubles to some.
  out["id_seed"] = std::to_string(spec.id_seed);
  return out.dump();
}

std::string to_json(const grammar_triggers& triggers) {
  auto patterns = common_json::array();
  for (const auto& p : triggers.patterns) patterns.push_back(p);
  auto tokens = common_json::array();
  for (const auto t : triggers.tokens) tokens.push_back(t);
  auto out = common_json::object();
  out["patterns"] = patterns;
  out["tokens"] = tokens;
  return out.dump();
}

parser_spec parser_spec_from_json(const std::string& text) {
  const auto in = common_json::parse(text);
  parser_spec out;
  out.format = in.at("format").get<int>();
  out.parser = in.at("parser").get<std::string>();
  out.tool_calls = in.at("tool_calls").get<bool>();
  out.id_seed = std::stoull(in.at("id_seed").get<std::string>());
  return out;
}

grammar_triggers grammar_triggers_from_json(const std::string& text) {
  grammar_triggers out;
  if (text.empty()) return out;
  const auto in = common_json::parse(text);
  for (const auto& p : in.at("patterns")) out.patterns.push_back(p.get<std::string>());
  for (const auto& t : in.at("tokens")) out.tokens.push_back(t.get<int>());
  return out;
}

}  // namespace troupe::gguf
