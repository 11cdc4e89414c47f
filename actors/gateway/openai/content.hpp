#pragma once

#include "actors/gateway/openai/messages.hpp"
#include "actors/gateway/openai/params.hpp"
#include "actors/gateway/openai/tools.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::gateway::openai {

using token_list = std::vector<std::int32_t>;
/// What a prompt is made of: a chat's messages, a text, or tokens.
using prompt_source = std::variant<std::span<const chat_message>, std::string_view, token_list>;

/// All of a request but its prompts.
struct content_options {
  const params& p;
  const answer_shape& shape;
  std::uint32_t max_tokens = 0;
  std::uint64_t seed = 0;
  std::uint64_t chain_key = 0;
  std::string kwargs_json;
};

/// Bytes of a prompt as the client wrote it.
std::size_t source_bytes(const prompt_source& source);

/// The flat `msg::Completion` of one prompt, and its chain.
std::shared_ptr<const request::prompt_content> make_content(const content_options& options,
                                                            const prompt_source& source);

}  // namespace troupe::gateway::openai
