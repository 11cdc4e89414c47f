#include "actors/gateway/rate_headers.hpp"

#include "actors/capacity/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe::gateway {

std::string reset_text(std::chrono::milliseconds t) {
  const auto ms = std::max<std::int64_t>(0, t.count());
  constexpr std::int64_t second = 1'000, minute = 60 * second, hour = 60 * minute;
  if (ms < second) return fmt::format("{}ms", ms);
  auto seconds = fmt::format("{:g}s", static_cast<double>(ms % minute) / second);
  if (ms < minute) return seconds;
  if (ms < hour) return fmt::format("{}m{}", ms / minute, seconds);
  return fmt::format("{}h{}m{}", ms / hour, ms % hour / minute, seconds);
}

http::header_list rate_headers(const request::rate_standing& at) {
  constexpr auto& one = capacity::reference_request;
  constexpr double tokens_per_mu = one.prompt_tokens + one.output_tokens;
  const auto whole = [](double x) {
    return fmt::format("{}", static_cast<std::uint64_t>(std::floor(std::max(0.0, x))));
  };
  const auto reset = reset_text(at.reset);
  return {{"x-ratelimit-limit-requests", whole(at.limit_per_minute)},
          {"x-ratelimit-limit-tokens", whole(at.limit_per_minute * tokens_per_mu)},
          {"x-ratelimit-limit-mu", fmt::format("{:g}", at.limit_per_minute)},
          {"x-ratelimit-remaining-requests", whole(at.remaining)},
          {"x-ratelimit-remaining-tokens", whole(at.remaining * tokens_per_mu)},
          {"x-ratelimit-remaining-mu", fmt::format("{:.3f}", std::max(0.0, at.remaining))},
          {"x-ratelimit-reset-requests", reset},
          {"x-ratelimit-reset-tokens", reset},
          {"x-ratelimit-reset-mu", reset}};
}

}  // namespace troupe::gateway
