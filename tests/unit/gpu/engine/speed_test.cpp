#include "gpu/engine/simulated/simulated_runner.hpp"
#include "gpu/engine/speed.hpp"

#include <catch2/catch.hpp>

using namespace troupe::engine;

namespace {

struct measured {
  std::chrono::steady_clock::time_point now{};
  engine_speed of(simulated_options o, position step_tokens = 512) {
    o.now = [this] { return now; };
    o.sleep = [this](std::chrono::nanoseconds t) { now += t; };
    simulated_runner runner(std::move(o));
    const auto speed = measure_speed(runner, step_tokens, [this] { return now; });
    CHECK(runner.truth().used_cells == 0);
    return speed;
  }
};

}  // namespace

TEST_CASE("speed: what the runner takes, and nothing stays behind") {
  simulated_options o;
  o.prefill_tokens_per_second = 1'600;
  o.decode_step_us = 9'000;
  o.decode_us_per_stream = 1'000;
  measured m;
  const auto speed = m.of(o);
  CHECK(speed.prefill == Approx(1'600));
  CHECK(speed.decode == Approx(100));
}

TEST_CASE("speed: small budgets, and runners that take no time or fail") {
  simulated_options o;
  o.prefill_tokens_per_second = 1'000;
  o.decode_step_us = 1'000;
  measured m;
  CHECK(m.of(o, 1).prefill == Approx(1'000));
  o.cells = 6;
  CHECK(m.of(o).prefill == Approx(1'000));
  o.cells = 3;
  CHECK(m.of(o).prefill == 0);
  simulated_options instant;
  CHECK(m.of(instant).prefill == 0);
  CHECK(m.of(instant).decode == 0);
}
