#pragma once

#include "actors/gateway/http/responder.hpp"
#include "actors/gateway/metrics.hpp"
#include "actors/gateway/openai/encode.hpp"
#include "actors/request/submission.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::gateway {

/// An answer that is not streamed is held until it is complete; above this it fails with 500.
inline constexpr std::size_t whole_answer_bytes_max = 256U << 20U;

/// What an answer needs to know of its request.
struct answer_options {
  openai::answer_identity who;
  http::header_list headers;  ///< of any answer: X-Request-Id
  std::string route;
  std::uint16_t choices = 1;  ///< of each prompt
  std::size_t prompts = 1;
  bool include_usage = false;
  bool logprobs = false;
};

/// A failure in OpenAI's terms.
openai::api_error to_api_error(const request::failure& why);

/// Each delta is an event, as it comes.
std::shared_ptr<request::client_sink> make_stream_sink(answer_options options,
                                                       std::shared_ptr<http::responder> to,
                                                       std::shared_ptr<metrics> counts);
/// One answer when all is there.
std::shared_ptr<request::client_sink> make_whole_sink(answer_options options,
                                                      std::shared_ptr<http::responder> to,
                                                      std::shared_ptr<metrics> counts);

}  // namespace troupe::gateway
