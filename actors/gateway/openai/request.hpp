#pragma once

#include "actors/gateway/openai/api_error.hpp"
#include "actors/request/submission.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::gateway::openai {

// What a body may hold, beside the limits of the cluster file. Above each: 400 with the parameter.
inline constexpr std::size_t json_depth_max = 64;
inline constexpr std::size_t messages_max = 16'384;
inline constexpr std::size_t content_parts_max = 4'096;  ///< of one message
inline constexpr std::size_t tools_max = 128;
inline constexpr std::size_t tool_calls_max = 128;  ///< of one message
inline constexpr std::size_t name_bytes_max = 64;   ///< of functions, schemas and participants
inline constexpr std::size_t stop_strings_max = 4;
inline constexpr std::size_t stop_bytes_max = 1'024;
inline constexpr std::size_t logit_bias_max = 1'024;
inline constexpr std::size_t metadata_pairs_max = 16;
inline constexpr std::size_t user_bytes_max = 256;
inline constexpr std::int64_t top_logprobs_max = 20;
inline constexpr std::int64_t completion_logprobs_max = 5;
inline constexpr std::int64_t completion_max_tokens_default =
    16;  ///< OpenAI's, for /v1/completions

/// What parsing needs to know beside the body.
struct parse_options {
  std::uint64_t prompt_bytes_max = 8U << 20U;  ///< of all prompts of a request; above: 413
  std::uint32_t choices_max = 16;
  std::uint32_t prompts_max = 64;
  std::uint64_t chain_key = 0;
  /// Draws the sampler's seed where the client gave none.
  std::function<std::uint64_t()> random;
};

/// A request after all checks that need no model.
struct parsed_request {
  bool chat = false;
  std::string model;
  std::vector<std::shared_ptr<const request::prompt_content>> prompts;
  std::uint16_t choices = 1;
  std::uint32_t max_tokens = 0;  ///< 0: as many as the context holds
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool echo = false;
  std::string user;
};

using parse_result = std::variant<parsed_request, api_error>;

/// Body of POST /v1/chat/completions. Pure but for `options.random`; thread-safe.
parse_result parse_chat(std::string_view body, const parse_options& options);
/// Body of POST /v1/completions. As `parse_chat`.
parse_result parse_completion(std::string_view body, const parse_options& options);

}  // namespace troupe::gateway::openai
