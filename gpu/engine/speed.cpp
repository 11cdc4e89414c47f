#include "gpu/engine/speed.hpp"

#include <algorithm>
#include <vector>

namespace troupe::engine {

engine_speed measure_speed(model_runner& runner, position step_tokens,
                           std::function<std::chrono::steady_clock::time_point()> now) {
  if (!now) now = [] { return std::chrono::steady_clock::now(); };
  const auto room = std::min<position>(runner.info().context_tokens, runner.cells());
  if (room <= speed_decodes + 1 || step_tokens == 0 || runner.info().vocabulary < 2) return {};
  const auto prompt = std::min({speed_prompt_tokens, step_tokens, room - speed_decodes});
  const auto token = static_cast<token_id>(runner.info().vocabulary / 2);
  bool whole = true;
  const auto pass = [&](position from, position tokens, bool decode) {
    std::vector<batch_token> batch;
    for (position i = 0; i < tokens; ++i) batch.push_back({0, token, from + i, decode});
    const auto start = now();
    whole = whole && runner.forward(batch) == forward_status::done;
    return std::chrono::duration<double>(now() - start).count();
  };
  engine_speed speed;
  if (const auto s = pass(0, prompt, false); s > 0) speed.prefill = prompt / s;
  double s = 0;
  for (position i = 0; i < speed_decodes && whole; ++i) s += pass(prompt + i, 1, true);
  if (s > 0) speed.decode = speed_decodes / s;
  runner.kv_remove(0, 0, prompt + speed_decodes);
  return whole ? speed : engine_speed{};
}

}  // namespace troupe::engine
