#include "actors/gateway/openai/content.hpp"
#include "actors/gateway/openai/messages.hpp"
#include "actors/gateway/openai/params.hpp"
#include "actors/gateway/openai/request.hpp"
#include "actors/gateway/openai/tools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace troupe::gateway::openai {

namespace {

constexpr std::int64_t token_id_max = std::numeric_limits<std::int32_t>::max();

api_error invalid_json(simdjson::error_code why) {
  api_error e;
  switch (why) {
  case simdjson::UTF8_ERROR:
    e.code = "invalid_utf8";
    e.message = "The body is not valid UTF-8.";
    break;
  case simdjson::DEPTH_ERROR:
    e.code = "json_too_deep";
    e.message = fmt::format("The body nests deeper than {} levels.", json_depth_max);
    break;
  case simdjson::EMPTY:
    e.code = "invalid_json";
    e.message = "The body is empty; it must be a JSON object.";
    break;
  default:
    e.code = "invalid_json";
    e.message = fmt::format("The body is not valid JSON: {}", simdjson::error_message(why));
  }
  return e;
}

bool read_tokens(checker& c, const path& at, simdjson::dom::array list, token_list& out) {
  // Not `list.size()`: it is capped in long arrays.
  std::size_t i = 0;
  for (json value : list) {
    std::int64_t id = 0;
    if (!c.integer(path{at, i++}, value, 0, token_id_max, id)) return false;
    out.push_back(static_cast<std::int32_t>(id));
  }
  return !out.empty() ||
         c.refuse(at, "invalid_value", fmt::format("'{}' has no tokens.", at.text()));
}

bool read_prompts(checker& c, const path& at, json v, std::size_t prompts_max,
                  std::vector<prompt_source>& out) {
  std::string_view text;
  if (v.get_string().get(text) == simdjson::SUCCESS) {
    out.emplace_back(text);
    return true;
  }
  simdjson::dom::array list;
  if (v.get_array().get(list) != simdjson::SUCCESS)
    return c.wrong_type(at, "a string, an array of strings, or an array of tokens", v);
  if (list.begin() == list.end())
    return c.refuse(at, "invalid_value", "'prompt' must not be empty.");
  const json first = *list.begin();
  if (first.is_int64() || first.is_uint64()) {
    token_list tokens;
    if (!read_tokens(c, at, list, tokens)) return false;
    out.emplace_back(std::move(tokens));
    return true;
  }
  for (json value : list) {
    const path where{at, out.size()};
    if (out.size() == prompts_max)
      return c.refuse(at, "invalid_value",
                      fmt::format("'prompt' must have at most {} prompts.", prompts_max));
    if (first.is_string()) {
      if (!c.text(where, value, text)) return false;
      out.emplace_back(text);
      continue;
    }
    token_list tokens;
    simdjson::dom::array inner;
    if (value.get_array().get(inner) != simdjson::SUCCESS)
      return c.wrong_type(where, "a string or an array of tokens", value);
    if (!read_tokens(c, where, inner, tokens)) return false;
    out.emplace_back(std::move(tokens));
  }
  return true;
}

bool read_sources(checker& c, const path& root, endpoint where, const parse_options& options,
                  const params& p, std::vector<chat_message>& messages,
                  std::vector<prompt_source>& out) {
  const auto* name = where == endpoint::chat ? "messages" : "prompt";
  const auto& given = where == endpoint::chat ? p.messages : p.prompt;
  const path at{root, name};
  if (!given)
    return c.refuse(at, "missing_required_parameter",
                    fmt::format("Missing required parameter: '{}'.", name));
  if (where == endpoint::chat) {
    if (!read_messages(c, at, *given, messages)) return false;
    out.emplace_back(std::span<const chat_message>(messages));
  } else if (!read_prompts(c, at, *given, options.prompts_max, out)) {
    return false;
  }
  std::size_t bytes = 0;
  for (const auto& source : out) bytes += source_bytes(source);
  return bytes <= options.prompt_bytes_max ||
         c.refuse(at, "prompt_too_large",
                  fmt::format("The prompt has {} bytes; at most {} are allowed.", bytes,
                              options.prompt_bytes_max),
                  413);
}

std::int64_t max_tokens_of(endpoint where, const params& p) {
  if (p.max_completion_tokens) return *p.max_completion_tokens;
  if (p.max_tokens) return *p.max_tokens;
  return where == endpoint::completion ? completion_max_tokens_default : 0;
}

bool check_all(checker& c, json body, endpoint where, const parse_options& options,
               parsed_request& out) {
  const path root;
  params p;
  if (!read_params(c, body, where, options, p)) return false;
  answer_shape shape;
  if (where == endpoint::chat && !read_answer_shape(c, root, p, shape)) return false;
  std::string kwargs_json;
  if (p.chat_template_kwargs) {
    simdjson::dom::object members;
    if (!c.object(path{root, "chat_template_kwargs"}, *p.chat_template_kwargs, members))
      return false;
    kwargs_json = simdjson::minify(*p.chat_template_kwargs);
  }
  std::vector<chat_message> messages;
  std::vector<prompt_source> sources;
  if (!read_sources(c, root, where, options, p, messages, sources)) return false;

  out.chat = where == endpoint::chat;
  out.model = p.model;
  out.choices = static_cast<std::uint16_t>(p.choices);
  out.max_tokens = static_cast<std::uint32_t>(max_tokens_of(where, p));
  out.stream = p.stream;
  out.include_usage = p.include_usage;
  out.logprobs = p.logprobs;
  out.echo = p.echo;
  out.user = p.user;
  const content_options content{.p = p,
                                .shape = shape,
                                .max_tokens = out.max_tokens,
                                .seed = p.seed ? *p.seed : options.random(),
                                .chain_key = options.chain_key,
                                .kwargs_json = std::move(kwargs_json)};
  for (const auto& source : sources) out.prompts.push_back(make_content(content, source));
  return true;
}

parse_result parse(std::string_view text, endpoint where, const parse_options& options) {
  // One parser for each body: what it keeps is as large as the largest body that it saw.
  simdjson::dom::parser parser;
  if (auto error = parser.allocate(std::max<std::size_t>(text.size(), 64), json_depth_max))
    return invalid_json(error);
  json body;
  if (auto error = parser.parse(text.data(), text.size()).get(body)) return invalid_json(error);
  checker c;
  parsed_request out;
  if (!check_all(c, body, where, options, out)) return c.error();
  return out;
}

}  // namespace

parse_result parse_chat(std::string_view body, const parse_options& options) {
  return parse(body, endpoint::chat, options);
}

parse_result parse_completion(std::string_view body, const parse_options& options) {
  return parse(body, endpoint::completion, options);
}

}  // namespace troupe::gateway::openai
