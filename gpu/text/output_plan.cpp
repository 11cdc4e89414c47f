#include "gpu/text/output_plan.hpp"

#include "messages/text.hpp"

#include <string>

namespace troupe::text {
namespace {

std::string to_string(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

}  // namespace

void write(msg::OutputPlan::Builder out, const engine::output_plan& plan) {
  out.setGrammar(msg::whole(plan.grammar));
  out.setGrammarLazy(plan.grammar_lazy);
  out.setGrammarTriggersJson(msg::whole(plan.grammar_triggers_json));
  auto preserved = out.initPreservedTokens(static_cast<unsigned>(plan.preserved_tokens.size()));
  for (unsigned i = 0; i < preserved.size(); ++i) preserved.set(i, plan.preserved_tokens[i]);
  out.setParserJson(msg::whole(plan.parser_json));
  auto stops = out.initStops(static_cast<unsigned>(plan.stops.size()));
  for (unsigned i = 0; i < stops.size(); ++i) stops.set(i, msg::whole(plan.stops[i]));
  out.setGenerationPrompt(msg::whole(plan.generation_prompt));
}

engine::output_plan read(msg::OutputPlan::Reader in) {
  engine::output_plan plan;
  plan.grammar = to_string(in.getGrammar());
  plan.grammar_lazy = in.getGrammarLazy();
  plan.grammar_triggers_json = to_string(in.getGrammarTriggersJson());
  for (const auto token : in.getPreservedTokens()) plan.preserved_tokens.push_back(token);
  plan.parser_json = to_string(in.getParserJson());
  for (const auto stop : in.getStops()) plan.stops.push_back(to_string(stop));
  plan.generation_prompt = to_string(in.getGenerationPrompt());
  return plan;
}

}  // namespace troupe::text
