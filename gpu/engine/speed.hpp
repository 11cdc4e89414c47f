#pragma once

#include "gpu/engine/runner.hpp"

#include <chrono>
#include <functional>

namespace troupe::engine {

/// How fast a runner is, in tokens a second; 0: not known.
struct engine_speed {
  double prefill = 0;
  double decode = 0;  ///< of one stream
};

/// Tokens that `measure_speed` computes at once, and how often it decodes.
inline constexpr position speed_prompt_tokens = 32;
inline constexpr position speed_decodes = 3;

/// Computes a short prompt and a few tokens more in the first slot of an idle runner, and takes
/// them away again. Right after loading, before there is an engine: an order of magnitude for
/// whoever plans with it, not a benchmark. `now` empty: std::chrono::steady_clock::now.
engine_speed measure_speed(model_runner& runner, position step_tokens,
                           std::function<std::chrono::steady_clock::time_point()> now = {});

}  // namespace troupe::engine
