#pragma once

#include "actors/gateway/openai/encode.hpp"
#include "actors/gateway/openai/logprobs.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::gateway::openai {

/// Collects an answer that is not streamed. Not thread-safe.
class whole_answer {
 public:
  /// `choices`: of all prompts together.
  whole_answer(answer_identity who, bool logprobs, std::size_t choices);

  void begin(std::size_t choice, std::string_view echo_text);
  void delta(std::size_t choice, msg::StreamDelta::Reader d);
  /// Bytes held so far.
  std::size_t bytes() const { return bytes_; }
  /// The response's body.
  std::string encode(const request::totals& sum);

 private:
  struct tool_call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  struct choice_state {
    std::string text;
    std::string reasoning;
    std::vector<tool_call> tool_calls;
    std::string chat_logprobs;
    completion_logprobs text_logprobs;
    msg::FinishReason finish = msg::FinishReason::NONE;
  };
  void encode_message(std::string& to, const choice_state& c) const;
  void encode_logprobs(std::string& to, choice_state& c) const;

  answer_identity who_;
  bool logprobs_;
  std::size_t bytes_ = 0;
  std::vector<choice_state> choices_;
};

}  // namespace troupe::gateway::openai
