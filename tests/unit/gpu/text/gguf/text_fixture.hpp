#pragma once

#include "gpu/text/text_model.hpp"

#include <capnp/message.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::text::testing {

inline constexpr engine::position context_tokens = 8192;

inline std::shared_ptr<const text_model> load(const std::string& chat_template = {},
                                              const std::string& path = TROUPE_TINY_GGUF) {
  auto model = load_gguf_text_model(path, chat_template, context_tokens);
  if (!model) FAIL(model.error().code << ": " << model.error().message);
  return std::move(*model);
}

struct turn {
  std::string role;
  std::string content;
};

/// A completion to be filled in.
struct request {
  capnp::MallocMessageBuilder arena;
  msg::Completion::Builder root = arena.initRoot<msg::Completion>();

  request() { root.getSampling().setSeed(7); }
  explicit request(std::initializer_list<turn> turns) : request() {
    const std::vector<turn> messages(turns);
    root.setIsChat(true);
    auto list = root.getPrompt().initMessages(static_cast<unsigned>(messages.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setRole(messages[i].role);
      list[i].setContent(messages[i].content);
    }
  }
};

inline const char* const weather_tools = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "Weather of a place",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]}}},
  {"type": "function", "function": {"name": "get_time", "description": "Time of a place",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}])";

inline rendered_prompt rendered(const text_model& model, request& r) {
  auto out = model.render(r.root.asReader());
  if (!out)
    FAIL(out.error().code << ": " << out.error().message << " [" << out.error().parameter << "]");
  return std::move(*out);
}

inline error render_error(const text_model& model, request& r) {
  auto out = model.render(r.root.asReader());
  REQUIRE_FALSE(out);
  INFO(out.error().message);
  CHECK_FALSE(out.error().message.empty());
  return out.error();
}

/// The text of tokens, control tokens included where the model can write them.
inline std::string text_of(const text_model& model, const std::vector<token_id>& tokens) {
  std::string out;
  for (const auto t : tokens) out += model.piece(t);
  return out;
}

/// Everything that an output stream gave out.
struct transcript {
  std::string text;
  std::string reasoning;
  std::vector<engine::tool_call_delta> calls;  ///< put together, by index
  std::vector<std::string> pieces;
  bool stopped = false;
  bool has_tool_calls = false;
  bool named_once = true;
  std::uint32_t emitted_bytes = 0;

  void add(const text_delta& d) {
    text += d.text;
    if (!d.text.empty()) pieces.push_back(d.text);
    reasoning += d.reasoning;
    stopped = stopped || d.stopped;
    has_tool_calls = d.has_tool_calls;
    for (const auto& c : d.tool_calls) {
      if (calls.size() <= c.index) calls.resize(c.index + 1);
      auto& all = calls[c.index];
      all.index = c.index;
      if (!c.name.empty() && !all.name.empty()) named_once = false;
      if (all.name.empty() && !c.arguments.empty() && c.name.empty()) named_once = false;
      all.id += c.id;
      all.name += c.name;
      all.arguments += c.arguments;
    }
  }
};

inline transcript stream(const text_model& model, const engine::output_plan& plan,
                         const std::vector<token_id>& tokens,
                         const std::vector<std::string>& stops = {}) {
  transcript out;
  auto output = model.make_output(plan, stops);
  for (const auto t : tokens) {
    const auto delta = output->push(t);
    out.add(delta);
    if (delta.stopped) break;
  }
  out.add(output->finish());
  out.emitted_bytes = output->emitted_bytes();
  return out;
}

inline std::vector<token_id> tokens_of(const text_model& model, const std::string& text) {
  auto out = model.tokenize(text, false, true);
  REQUIRE(out);
  return std::move(*out);
}

/// Whether a plan's grammar takes exactly this text as an answer.
inline bool takes(const text_model& model, const engine::output_plan& plan,
                  const std::string& answer) {
  auto limits = model.make_constraint(plan);
  REQUIRE(limits);
  const auto tokens = tokens_of(model, "x" + answer);  // lest the tokeniser put a space before it
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    if (!(*limits)->allows(tokens[i])) return false;
    (*limits)->accept(tokens[i]);
  }
  return (*limits)->allows(2);
}

inline void set_schema(request& r, const std::string& schema) {
  r.root.getResponseFormat().setJsonSchema(schema);
}

/// The answers that a schema's grammar takes, and some that it does not.
inline void check_schema(const text_model& model, const std::string& schema,
                         const std::vector<const char*>& taken,
                         const std::vector<const char*>& not_taken) {
  request asked{{"user", "go"}};
  set_schema(asked, schema);
  const auto plan = rendered(model, asked).plan;
  for (const auto* text : taken) {
    INFO(text);
    CHECK(takes(model, plan, text));
  }
  for (const auto* text : not_taken) {
    INFO(text);
    CHECK_FALSE(takes(model, plan, text));
  }
}

/// Lets a grammar write: always the allowed token that `choose` likes best, until it allows an end.
inline std::string written(const text_model& model, const engine::output_plan& plan,
                           std::uint64_t seed, std::size_t tokens_max) {
  auto limits = model.make_constraint(plan);
  if (!limits) FAIL(limits.error().message);
  std::vector<token_id> out;
  auto x = seed * 0x9E3779B97F4A7C15ULL + 1;
  std::vector<std::pair<token_id, float>> all;
  while (out.size() < tokens_max) {
    all.clear();
    for (token_id t = 0; t < static_cast<token_id>(model.vocabulary()); ++t)
      all.emplace_back(t, 1.0F);
    (*limits)->mask(all);
    std::erase_if(all, [](const auto& c) { return !std::isfinite(c.second); });
    if (all.empty()) FAIL("the grammar allows nothing after: " << text_of(model, out));
    const auto end = std::find_if(all.begin(), all.end(),
                                  [&](const auto& c) { return model.is_end(c.first); });
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    if (end != all.end()) break;
    const auto pick = all[(x >> 33U) % all.size()].first;
    CHECK((*limits)->allows(pick));
    (*limits)->accept(pick);
    out.push_back(pick);
  }
  return stream(model, plan, out).text;
}

}  // namespace troupe::text::testing
