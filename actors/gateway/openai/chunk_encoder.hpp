#pragma once

#include "actors/gateway/openai/encode.hpp"
#include "actors/gateway/openai/logprobs.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::gateway::openai {

/// Turns what a request actor says into server-sent events. What all chunks share is made once, so
/// that a token costs an append and the escaping of its text. Not thread-safe.
class chunk_encoder {
 public:
  /// `choices`: of all prompts together.
  chunk_encoder(const answer_identity& who, bool include_usage, bool logprobs, std::size_t choices);

  /// The first chunk of a choice: the role of a chat's answer, or a completion's echoed prompt.
  void begin(std::string& to, std::size_t choice, std::string_view echo_text);
  /// Nothing where the delta has nothing for the client.
  void delta(std::string& to, std::size_t choice, msg::StreamDelta::Reader d);
  /// The usage chunk, where the client asked for it, and `[DONE]`.
  void end(std::string& to, const request::totals& sum);
  /// The event by which a stream ends that cannot go on.
  static void error(std::string& to, const api_error& e);

 private:
  void open(std::string& to, std::size_t choice) const;
  void close(std::string& to, const char* finish) const;
  void chat_delta(std::string& to, std::size_t choice, msg::StreamDelta::Reader d);
  void completion_delta(std::string& to, std::size_t choice, msg::StreamDelta::Reader d);
  void append_logprobs(std::string& to, std::size_t choice, msg::StreamDelta::Reader d);

  bool chat_;
  bool include_usage_;
  bool logprobs_;
  std::string prefix_;  ///< up to and with `"choices":[`
  std::string suffix_;  ///< from `]` on
  std::vector<completion_logprobs> completion_logprobs_;
};

}  // namespace troupe::gateway::openai
