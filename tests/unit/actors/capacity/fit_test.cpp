#include "actors/capacity/fit.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <random>
#include <vector>

using namespace troupe;
using namespace troupe::capacity;

namespace {

/// A request that ran in steps of `batch` streams on an engine with these costs.
measured_request run(const coefficients& c, std::uint32_t prompt, std::uint32_t cached,
                     std::uint32_t output, double batch) {
  measured_request r;
  r.shape = {prompt, cached, output, 0};
  r.computed_tokens = prompt - cached;
  for (auto p = cached; p < prompt; ++p) r.computed_context += p;
  r.sampled_tokens = output;
  for (std::uint32_t i = 0; i < output; ++i) r.sampled_context += prompt + i;
  r.step_shares = output / batch;
  r.prefill_seconds = c.alpha * r.computed_tokens +
                      c.alpha2 * (2 * r.computed_context + r.computed_tokens);
  r.decode_seconds = c.beta * r.sampled_tokens + c.beta_step * r.step_shares +
                     c.gamma * r.sampled_context;
  return r;
}

std::vector<measured_request> sweep(const coefficients& c, std::mt19937& random) {
  std::vector<measured_request> all;
  for (const double batch : {1.0, 2.0, 4.0, 8.0})
    for (const std::uint32_t prompt : {64U, 512U, 2'048U})
      for (const std::uint32_t output : {16U, 128U})
        all.push_back(run(c, prompt + random() % 10, random() % 30, output, batch));
  return all;
}

const coefficients truth{2e-3, 1.5e-7, 4e-3, 1.1e-2, 2e-6, 0};

}  // namespace

TEST_CASE("fit: the coefficients of an engine that keeps to the formula are found") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto all = sweep(truth, random);
  const auto found = fit_costs(all);
  REQUIRE(found);
  CHECK(found->alpha == Approx(truth.alpha).epsilon(1e-3));
  CHECK(found->alpha2 == Approx(truth.alpha2).epsilon(1e-2));
  CHECK(found->beta == Approx(truth.beta).epsilon(1e-2));
  CHECK(found->beta_step == Approx(truth.beta_step).epsilon(1e-2));
  CHECK(found->gamma == Approx(truth.gamma).epsilon(1e-2));
}

TEST_CASE("fit: with noise of 10 %, requests of other lengths and batches are foretold within it") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(1, 0.1);
  auto all = sweep(truth, random);
  for (auto& r : all) {
    r.prefill_seconds *= std::max(0.5, noise(random));
    r.decode_seconds *= std::max(0.5, noise(random));
  }
  const auto found = fit_costs(all);
  REQUIRE(found);
  const auto model = cost_model::make(*found, {"x", 4, provenance::calibrated, "", 0});
  REQUIRE(model);
  std::vector<measured_request> held_out;
  for (int i = 0; i < 60; ++i)
    held_out.push_back(run(truth, 40 + random() % 1'500, 0, 10 + random() % 200, 3));
  const auto errors = judge(predict(*model, held_out, 3));
  CHECK(errors.count == 60);
  CHECK(errors.median < 0.1);
  CHECK(std::abs(errors.bias) < 0.15);
}

TEST_CASE("fit: without a prompt or an answer among the measurements there is nothing to fit") {
  CHECK(fit_costs({}).error().code == "nothing_measured");
  const auto no_answer = std::vector{run(truth, 100, 0, 0, 1)};
  CHECK_THAT(fit_costs(no_answer).error().message, Catch::Contains("answer"));
  const auto no_prompt = std::vector{run(truth, 100, 100, 10, 1)};
  CHECK_THAT(fit_costs(no_prompt).error().message, Catch::Contains("prompt"));
}

TEST_CASE("fit: median, p90 and bias by hand; requests that cost nothing are left out") {
  const std::vector<prediction> all{{1.1, 1}, {0.8, 1}, {3, 2}, {1, 1}, {5, 0}};
  const auto e = judge(all);
  CHECK(e.count == 4);
  CHECK(e.median == Approx(0.1));
  CHECK(e.p90 == Approx(0.5));
  CHECK(e.bias == Approx(5.9 / 5 - 1));
  CHECK(judge({}).count == 0);
}

TEST_CASE("fit: the usual batch is what a sampled token sees") {
  const std::vector<measured_request> all{run(truth, 10, 0, 100, 1), run(truth, 10, 0, 100, 4)};
  CHECK(usual_batch_of(all) == Approx(200 / 125.0));
  CHECK(usual_batch_of({}) == 1);
}
