#include "actors/gateway/openai/content.hpp"

#include "actors/gateway/openai/chain.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstring>

namespace troupe::gateway::openai {

namespace {

// Room in the first segment for everything but the texts, so that most requests are one segment.
constexpr std::size_t spare_words = 256;
constexpr std::size_t words_per_message = 16;

void fill(capnp::Text::Builder to, std::string_view from) {
  if (!from.empty()) std::memcpy(to.begin(), from.data(), from.size());
}

unsigned size_of(std::string_view s) { return static_cast<unsigned>(s.size()); }

void set_messages(msg::Completion::Builder root, std::span<const chat_message> messages) {
  auto list = root.getPrompt().initMessages(static_cast<unsigned>(messages.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto& from = messages[i];
    auto to = list[i];
    fill(to.initRole(size_of(from.role)), from.role);
    if (from.has_content) fill(to.initContent(size_of(from.text())), from.text());
    if (!from.name.empty()) fill(to.initName(size_of(from.name)), from.name);
    if (!from.tool_call_id.empty())
      fill(to.initToolCallId(size_of(from.tool_call_id)), from.tool_call_id);
    if (!from.tool_calls_json.empty())
      fill(to.initToolCallsJson(size_of(from.tool_calls_json)), from.tool_calls_json);
  }
}

void set_tokens(msg::Completion::Builder root, const token_list& tokens) {
  auto list = root.getPrompt().initTokens(static_cast<unsigned>(tokens.size()));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, tokens[i]);
}

void set_sampling(msg::Sampling::Builder to, const params& p, std::uint64_t seed) {
  to.setTemperature(p.temperature);
  to.setTopP(p.top_p);
  to.setTopK(static_cast<std::int32_t>(p.top_k));
  to.setMinP(p.min_p);
  to.setSeed(seed);
  to.setPresencePenalty(p.presence_penalty);
  to.setFrequencyPenalty(p.frequency_penalty);
  if (p.logit_bias.empty()) return;
  auto list = to.initLogitBias(static_cast<unsigned>(p.logit_bias.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setToken(p.logit_bias[i].first);
    list[i].setBias(p.logit_bias[i].second);
  }
}

void set_shape(msg::Completion::Builder root, const answer_shape& shape) {
  switch (shape.form) {
  case answer_shape::format::text:
    root.getResponseFormat().setText();
    break;
  case answer_shape::format::json_object:
    root.getResponseFormat().setJsonObject();
    break;
  case answer_shape::format::json_schema:
    fill(root.getResponseFormat().initJsonSchema(size_of(shape.schema_json)), shape.schema_json);
    break;
  }
  if (!shape.tools_json.empty())
    fill(root.initToolsJson(size_of(shape.tools_json)), shape.tools_json);
  root.setToolChoice(shape.choice);
  if (!shape.function.empty()) fill(root.initToolName(size_of(shape.function)), shape.function);
  root.setParallelToolCalls(shape.parallel);
}

void set_prompt(msg::Completion::Builder root, const prompt_source& source) {
  if (const auto* messages = std::get_if<std::span<const chat_message>>(&source)) {
    set_messages(root, *messages);
    root.setIsChat(true);
  } else if (const auto* text = std::get_if<std::string_view>(&source)) {
    fill(root.getPrompt().initText(size_of(*text)), *text);
  } else {
    set_tokens(root, std::get<token_list>(source));
  }
}

// The canonical form: what decides the prompt's tokens, in the order in which templates put it, so
// that what two prompts share comes first.
std::vector<std::uint64_t> chain_of(const content_options& options, const prompt_source& source) {
  chain_builder chain{options.chain_key};
  chain.add(options.p.model);
  chain.end_field();
  if (const auto* messages = std::get_if<std::span<const chat_message>>(&source)) {
    chain.add(options.shape.tools_json);
    chain.end_field();
    chain.add(options.kwargs_json);
    chain.end_field();
    for (const auto& m : *messages)
      for (auto part :
           {m.role, m.name, m.tool_call_id, m.text(), std::string_view(m.tool_calls_json)}) {
        chain.add(part);
        chain.end_field();
      }
  } else if (const auto* text = std::get_if<std::string_view>(&source)) {
    chain.add(*text);
  } else {
    for (auto id : std::get<token_list>(source)) {
      char bytes[sizeof id];
      std::memcpy(bytes, &id, sizeof id);
      chain.add({bytes, sizeof id});
    }
  }
  return std::move(chain).take();
}

}  // namespace

std::size_t source_bytes(const prompt_source& source) {
  if (const auto* messages = std::get_if<std::span<const chat_message>>(&source)) {
    std::size_t sum = 0;
    for (const auto& m : *messages)
      sum += m.role.size() + m.name.size() + m.tool_call_id.size() + m.text().size() +
             m.tool_calls_json.size();
    return sum;
  }
  if (const auto* text = std::get_if<std::string_view>(&source)) return text->size();
  return std::get<token_list>(source).size() * sizeof(std::int32_t);
}

std::shared_ptr<const request::prompt_content> make_content(const content_options& options,
                                                            const prompt_source& source) {
  auto words = spare_words + source_bytes(source) / sizeof(capnp::word);
  if (const auto* messages = std::get_if<std::span<const chat_message>>(&source))
    words += messages->size() * words_per_message;
  words += (options.shape.tools_json.size() + options.shape.schema_json.size()) / 8 +
           options.p.logit_bias.size();
  capnp::MallocMessageBuilder builder{static_cast<unsigned>(words)};
  auto root = builder.initRoot<msg::Completion>();
  const auto& p = options.p;
  fill(root.initModel(size_of(p.model)), p.model);
  set_prompt(root, source);
  root.setChoices(static_cast<std::uint16_t>(p.choices));
  root.setMaxTokens(options.max_tokens);
  set_sampling(root.initSampling(), p, options.seed);
  auto stops = root.initStop(static_cast<unsigned>(p.stop.size()));
  for (unsigned i = 0; i < stops.size(); ++i) fill(stops.init(i, size_of(p.stop[i])), p.stop[i]);
  root.setLogprobs(p.logprobs);
  root.setTopLogprobs(static_cast<std::uint8_t>(p.top_logprobs.value_or(0)));
  set_shape(root, options.shape);
  root.setEcho(p.echo);
  root.setIgnoreEos(p.ignore_eos);
  if (!options.kwargs_json.empty())
    fill(root.initChatTemplateKwargsJson(size_of(options.kwargs_json)), options.kwargs_json);

  auto content = std::make_shared<request::prompt_content>();
  content->words = capnp::messageToFlatArray(builder);
  content->chain = chain_of(options, source);
  return content;
}

}  // namespace troupe::gateway::openai
