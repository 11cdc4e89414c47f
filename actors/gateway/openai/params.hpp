#pragma once

#include "actors/gateway/openai/json_input.hpp"
#include "actors/gateway/openai/request.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::gateway::openai {

enum class endpoint : std::uint8_t { chat = 1, completion = 2 };

/// The body's parameters, each checked by itself. Views point into the parsed body.
struct params {
  std::string_view model;
  std::string_view user;
  std::optional<json> messages;
  std::optional<json> prompt;
  std::optional<json> tools;
  std::optional<json> tool_choice;
  std::optional<json> response_format;
  std::optional<json> stream_options;
  std::optional<json> chat_template_kwargs;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> max_completion_tokens;
  std::optional<std::uint64_t> seed;
  std::optional<bool> parallel_tool_calls;
  std::optional<std::int64_t> top_logprobs;
  std::optional<std::int64_t> best_of;
  std::vector<std::string_view> stop;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::int64_t choices = 1;
  std::int64_t top_k = 0;
  float temperature = 1;
  float top_p = 1;
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool echo = false;
  bool ignore_eos = false;
};

/// Reads all of a body's parameters: what is unknown, unsupported, doubled, of a wrong type or out
/// of range is refused by name, and so is what contradicts something else. Null is "not given".
bool read_params(checker& check, json body, endpoint where, const parse_options& options,
                 params& out);

}  // namespace troupe::gateway::openai
