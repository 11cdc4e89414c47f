#include "gpu/text/gguf/chat.hpp"

#include "gpu/text/gguf/builtin_templates.hpp"
#include "gpu/text/gguf/chat_request.hpp"
#include "gpu/text/gguf/grammar.hpp"
#include "gpu/text/gguf/plan_json.hpp"
#include "gpu/text/gguf/tool_fallback.hpp"

#include <chat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <json-schema-to-grammar.h>
#include <llama.h>
#include <log.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::gguf {
namespace {

std::vector<std::string> known_names() {
  std::vector<const char*> names(256);
  const auto count = llama_chat_builtin_templates(names.data(), names.size());
  names.resize(static_cast<std::size_t>(std::clamp<std::int32_t>(count, 0, 256)));
  return {names.begin(), names.end()};
}

/// llama.cpp's helpers log prompts; errors come as exceptions anyway.
void silence_helpers() {
  static std::once_flag once;
  std::call_once(once, [] { common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT - 1); });
}

error template_failed(const std::exception& e) {
  return {"template_failed",
          fmt::format("the model's chat template refuses this request: {}", e.what()), "messages"};
}

std::string schema_of(msg::Completion::Reader request) {
  const auto format = request.getResponseFormat();
  if (format.isJsonObject()) return R"({"type": "object"})";
  if (!format.isJsonSchema()) return {};
  const auto schema = format.getJsonSchema();
  return {schema.begin(), schema.size()};
}

grammar_triggers triggers_of(const common_chat_params& params, const vocabulary& words,
                             const std::vector<token_id>& preserved) {
  grammar_triggers out;
  for (const auto& trigger : params.grammar_triggers) {
    switch (trigger.type) {
    case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
      out.tokens.push_back(trigger.token);
      break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: {
      const auto token = words.single_token(trigger.value);
      if (token && std::find(preserved.begin(), preserved.end(), *token) != preserved.end())
        out.tokens.push_back(*token);
      else
        out.patterns.push_back(regex_escape(trigger.value));
      break;
    }
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
      out.patterns.push_back(trigger.value);
      break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: {
      const auto& p = trigger.value;
      const bool begins = p.starts_with('^');
      const bool ends = p.ends_with('$');
      out.patterns.push_back((begins ? "" : "^") + p + (ends ? "" : "$"));
      break;
    }
    }
  }
  return out;
}

bool has_rule(const std::string& grammar, std::string_view name) {
  const auto head = std::string(name) + " ::= ";
  return grammar.starts_with(head) || grammar.find("\n" + head) != std::string::npos;
}

/// Puts another body into the rule `name`, if there is one.
void replace_rule(std::string& grammar, std::string_view name, const std::string& body) {
  const auto head = std::string(name) + " ::= ";
  auto at = grammar.starts_with(head) ? 0 : grammar.find("\n" + head);
  if (at == std::string::npos) return;
  if (grammar[at] == '\n') ++at;
  const auto end = std::min(grammar.find('\n', at), grammar.size());
  grammar.replace(at, end - at, head + body);
}

// llama.cpp's names of the rules of one call and of all.
constexpr std::string_view one_call_rule = "tool-call";
constexpr std::string_view calls_rule = "tool-calls";

/// llama.cpp lets any text come before a forced call, which a weak model uses until it meets its
/// limit: the answer is to be the call, from its first character on. Where it may begin with
/// reasoning, the text stays.
void forbid_text_before_call(common_chat_params& params) {
  if (params.supports_thinking) return;
  const auto first = has_rule(params.grammar, calls_rule)      ? calls_rule
                     : has_rule(params.grammar, one_call_rule) ? one_call_rule
                                                               : std::string_view{};
  if (first.empty()) return;
  replace_rule(params.grammar, "root",
               fmt::format("{} {}", gbnf_format_literal(params.generation_prompt), first));
}

common_chat_params apply_template(const common_chat_templates& templates,
                                  const common_chat_templates_inputs& inputs) {
  auto out = common_chat_templates_apply(&templates, inputs);
  if (inputs.tools.empty()) return out;
  // Where each call has a frame of its own, llama.cpp's grammar allows any number of them.
  if (!inputs.parallel_tool_calls && has_rule(out.grammar, one_call_rule) &&
      out.grammar.find("\ntool-calls ::= (tool-call space)+") != std::string::npos)
    replace_rule(out.grammar, calls_rule, std::string(one_call_rule));
  if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) forbid_text_before_call(out);
  return out;
}

}  // namespace

void chat::deleter::operator()(common_chat_templates* templates) const {
  common_chat_templates_free(templates);
}

chat::~chat() = default;

/// A request with what is decided about it.
struct chat::request_inputs {
  common_chat_templates_inputs inputs;
  held_schema answer;  ///< empty: any text
  bool calls_tools = false;
};

expected<std::unique_ptr<chat>> chat::make(const llama_model* model, const std::string& which,
                                           std::shared_ptr<const vocabulary> words) {
  silence_helpers();
  std::unique_ptr<chat> out(new chat);
  out->words_ = std::move(words);
  if (which.empty() && llama_model_chat_template(model, nullptr) == nullptr) return out;
  std::string source = which;
  if (which == "gemma") {
    source = gemma_template;
  } else if (!which.empty() && which != "chatml" && which.find('{') == std::string::npos) {
    const auto names = known_names();
    if (std::find(names.begin(), names.end(), which) == names.end())
      return error{"template_unknown",
                   fmt::format("\"{}\" is no chat template: neither Jinja source nor one of {}",
                               which, fmt::join(names, ", "))};
    out->jinja_ = false;
  }
  try {
    out->templates_.reset(common_chat_templates_init(model, source).release());
    if (out->jinja_)
      out->describes_tools_ = common_chat_templates_get_caps(
          out->templates_.get())["supports_tools"];
    if (!out->describes_tools_)
      out->tool_format_.reset(common_chat_templates_init(model, tool_format_template).release());
    out->plain_answers_ = out->answers_plainly();
  } catch (const std::exception& e) {
    return error{"template_unknown", fmt::format("the chat template cannot be used: {}", e.what())};
  }
  return out;
}

/// Whether an answer without tools is nothing but text. Then llama.cpp needn't find out how the
/// template writes everything else, which takes it longer than all the rest of rendering.
bool chat::answers_plainly() const {
  if (!jinja_) return false;
  common_chat_templates_inputs inputs;
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  common_chat_msg message;
  message.role = "user";
  message.content = "hello";
  inputs.messages.push_back(std::move(message));
  try {
    const auto params = common_chat_templates_apply(templates_.get(), inputs);
    inputs.force_pure_content = true;
    const auto pure = common_chat_templates_apply(templates_.get(), inputs);
    return !params.supports_thinking && params.additional_stops.empty() && params.grammar.empty() &&
           params.prompt == pure.prompt;
  } catch (const std::exception&) {
    return false;  // a template may refuse so short a conversation
  }
}

expected<rendered_chat> chat::render(msg::Completion::Reader request) const {
  if (!templates_)
    return error{"no_chat_template",
                 "the model has no chat template, so it can only complete text (/v1/completions); "
                 "set `chat_template` of the model in the cluster file",
                 "messages"};
  auto inputs = chat_inputs(request);
  if (!inputs) return inputs.error();
  request_inputs in{std::move(*inputs), {}, false};
  in.calls_tools = !in.inputs.tools.empty() &&
                   in.inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
  const bool constrained = !request.getResponseFormat().isText();
  if (constrained) {
    if (in.calls_tools)
      return error{"unsupported_parameter",
                   "an answer that follows a schema and may also call tools is not supported: "
                   "leave out `tools` or `response_format`, or set `tool_choice` to none",
                   "response_format"};
    auto held = hold_schema(schema_of(request));
    if (!held) return held.error();
    in.answer = std::move(*held);
  }
  if (in.calls_tools) {
    for (std::size_t i = 0; i < in.inputs.tools.size(); ++i) {
      if (auto held = hold_schema(in.inputs.tools[i].parameters, unheld_keywords::allow); !held)
        return error{"invalid_tools",
                     fmt::format("the parameters of the tool \"{}\": {}", in.inputs.tools[i].name,
                                 held.error().message),
                     fmt::format("tools[{}].function.parameters", i)};
    }
  }
  try {
    auto out = apply(in);
    if (!out || out->plan.grammar.empty()) return out;
    // Here, where the client can still be told: whether the grammar works with this vocabulary.
    if (auto limits = make_constraint(words_, out->plan); !limits) {
      auto why = limits.error();
      if (in.calls_tools) why.code = "invalid_tools", why.parameter = "tools";
      return why;
    }
    return out;
  } catch (const std::exception& e) {
    return template_failed(e);
  }
}

expected<rendered_chat> chat::apply(const request_inputs& in) const {
  auto inputs = in.inputs;
  inputs.use_jinja = jinja_;
  inputs.force_pure_content = plain_answers_ && !in.calls_tools;
  common_chat_params params;
  rendered_chat out;
  if (in.calls_tools && !describes_tools_) {
    // The format's own grammar and parser, the model's own turns.
    auto format_inputs = inputs;
    format_inputs.use_jinja = true;
    auto format = apply_template(*tool_format_, format_inputs);
    describe_tools(inputs);
    inputs.force_pure_content = plain_answers_;
    params = common_chat_templates_apply(templates_.get(), inputs);
    out.prompt = std::move(params.prompt);
    auto stops = std::move(params.additional_stops);
    params = std::move(format);
    params.additional_stops = std::move(stops);
    out.parses = true;
  } else {
    if (!describes_tools_) describe_tools(inputs);  // turns with calls in the conversation so far
    params = apply_template(*templates_, inputs);
    out.parses = in.calls_tools || params.supports_thinking;
    if (out.parses && !in.answer.text.empty()) {
      inputs.json_schema = in.answer.text;
      params = common_chat_templates_apply(templates_.get(), inputs);
    }
    out.prompt = std::move(params.prompt);
  }
  auto& plan = out.plan;
  plan.stops = std::move(params.additional_stops);
  if (!out.parses) {
    plan.grammar = in.answer.grammar;
    return out;
  }
  for (const auto& text : params.preserved_tokens)
    if (const auto token = words_->single_token(text)) plan.preserved_tokens.push_back(*token);
  plan.generation_prompt = params.generation_prompt;
  plan.grammar = params.grammar;
  mend_names(plan.grammar);
  plan.grammar_lazy = params.grammar_lazy;
  if (params.grammar_lazy)
    plan.grammar_triggers_json = to_json(triggers_of(params, *words_, plan.preserved_tokens));
  parser_spec spec;
  spec.format = params.format;
  spec.parser = params.parser;
  spec.tool_calls = in.calls_tools;
  plan.parser_json = to_json(spec);
  return out;
}

}  // namespace troupe::gguf
