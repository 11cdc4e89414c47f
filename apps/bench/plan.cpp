#include "apps/bench/plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::bench {

plan::plan(plan_options options) : options_(std::move(options)), random_(options_.seed) {}

// The standard library's distributions differ between implementations; these do not.
double plan::uniform() { return static_cast<double>(random_() >> 11U) * 0x1p-53; }

std::uint32_t plan::draw(length_range range) {
  if (range.max <= range.min) return range.min;
  const auto width = static_cast<double>(range.max) - static_cast<double>(range.min) + 1;
  return range.min + static_cast<std::uint32_t>(uniform() * width);
}

namespace {

/// Later than anybody waits, and still a time.
constexpr double latest_s = 9e9;

nanoseconds time_of(double s) {
  return nanoseconds{static_cast<std::int64_t>(std::min(s, latest_s) * 1e9)};
}

}  // namespace

std::optional<nanoseconds> plan::next_time() {
  if (!options_.trace.empty()) {
    if (index_ >= options_.trace.size()) return std::nullopt;
    return time_of(static_cast<double>(options_.trace[index_].at.count()) / 1e9 / options_.speedup);
  }
  if (options_.rate_per_s <= 0) return nanoseconds{0};
  poisson_s_ += -std::log(1.0 - uniform()) / options_.rate_per_s;
  return time_of(poisson_s_);
}

std::optional<planned_request> plan::next() {
  if (index_ >= options_.requests_max) return std::nullopt;
  const auto at = next_time();
  if (!at || *at > options_.duration) return std::nullopt;
  planned_request request;
  request.index = index_;
  request.at = *at;
  if (options_.trace.empty()) {
    request.prompt_bytes = draw(options_.prompt_bytes);
    request.max_tokens = draw(options_.max_tokens);
    request.prefix = static_cast<std::uint64_t>(uniform() * static_cast<double>(options_.prefixes));
  } else {
    const auto& entry = options_.trace[index_];
    request.prompt_bytes = static_cast<std::uint32_t>(entry.prompt_tokens *
                                                      options_.bytes_per_token);
    request.max_tokens = std::clamp<std::uint32_t>(
        entry.output_tokens, 1, std::max<std::uint32_t>(1, options_.max_tokens.max));
    request.blocks = entry.blocks;
  }
  ++index_;
  return request;
}

}  // namespace troupe::bench
