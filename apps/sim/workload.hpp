#pragma once

#include "apps/sim/seeded.hpp"

#include "actors/request/submission.hpp"
#include "gpu/engine/types.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::sim {

/// What one choice of an answer is when nothing fails.
struct expected_choice {
  std::vector<engine::token_id> ids;
  std::string text;
  msg::FinishReason why = msg::FinishReason::NONE;
};

/// One kind of request. The catalogue is the same in every run, so that each answer is computed
/// once: a simulated engine's output is a function of the request alone.
struct request_shape {
  std::string prompt;
  std::uint32_t max_tokens = 16;
  std::uint16_t choices = 1;
  float temperature = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> stops;
  std::shared_ptr<const request::prompt_content> content;
  std::vector<expected_choice> answer;  ///< empty: it is to be refused
  std::string refusal;                  ///< the code then
};

/// All kinds of requests, with their answers from an engine of its own. Made once.
const std::vector<request_shape>& catalogue();

/// Longest sequence of the model that everything is asked of, in tokens.
inline constexpr std::uint32_t context_tokens = 2'048;

/// One client's plan.
struct planned_request {
  std::size_t shape = 0;
  std::chrono::nanoseconds at{0};
  std::size_t host = 0;  ///< whose gateway it asks, if that is up
  std::chrono::milliseconds timeout{150'000};
  /// After so many tokens (of all choices) the client goes away; 0: it stays.
  std::uint32_t leaves_after_tokens = 0;
  std::chrono::milliseconds leaves_after{0};  ///< 0: it stays
  std::string session;
};

/// `count` requests of all kinds within `during`. Pure.
std::vector<planned_request> plan_requests(seeded random, std::size_t count, std::size_t hosts,
                                           std::chrono::milliseconds during);

}  // namespace troupe::sim
