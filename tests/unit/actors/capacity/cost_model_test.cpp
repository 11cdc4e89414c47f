#include "actors/capacity/cost_model.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace troupe;
using namespace troupe::capacity;

namespace {

const coefficients small_cpu{2e-3, 1e-7, 5e-3, 1.2e-2, 1e-6, 4e-3};

cost_model make(const coefficients& c, double batch = 4) {
  auto made = cost_model::make(c, {"cpu", batch, provenance::calibrated, "here", 0});
  REQUIRE(made);
  return *made;
}

/// Computes [cached, to), and samples behind a context of `prompt` tokens.
attempt_work attempt(std::uint32_t prompt, std::uint32_t cached, std::uint32_t to,
                     std::uint32_t out, double transfer = 0) {
  attempt_work a;
  a.cached_tokens = cached;
  a.computed_to = to;
  if (to > cached) {
    a.computed_tokens = to - cached;
    a.computed_context = a.computed_tokens * (cached + (a.computed_tokens - 1) / 2.0);
  }
  a.output_tokens = out;
  a.sampled_context = out * (prompt + out / 2.0);
  a.transfer_seconds = transfer;
  return a;
}

}  // namespace

TEST_CASE("cost model: the reference request is one model unit, whatever the coefficients") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> magnitude(-9, 0), batch(1, 64);
  for (int i = 0; i < 200; ++i) {
    const auto any = [&] { return std::pow(10.0, magnitude(random)); };
    const auto model = make({any(), any() * 1e-4, any(), any(), any() * 1e-4, any()},
                            batch(random));
    CHECK(model.mu({3'500, 0, 300, 0}) == Approx(1));
    CHECK(model.prefill_mu(3'500, 0) + model.decode_mu(3'500, 300) == Approx(1));
    const request_shape r{1'000, 200, 50, 10};
    CHECK(model.mu(r) * model.seconds_per_mu() ==
          Approx(model.seconds(r, model.about().usual_batch)));
  }
  CHECK(cost_model::assumed().mu(reference_request) == Approx(1));
}

TEST_CASE("cost model: each term, by hand") {
  const auto model = make(small_cpu, 4);
  CHECK(model.prefill_seconds(100, 40) == Approx(2e-3 * 60 + 1e-7 * (100 * 100 - 40 * 40)));
  CHECK(model.decode_seconds(100, 10, 4) ==
        Approx((5e-3 + 1.2e-2 / 4) * 10 + 1e-6 * 10 * (100 + 5)));
  CHECK(model.decode_seconds(100, 10, 1) - model.decode_seconds(100, 10, 2) ==
        Approx(1.2e-2 / 2 * 10));
  CHECK(model.seconds({100, 40, 10, 3}, 4) ==
        Approx(model.prefill_seconds(100, 40) + model.decode_seconds(100, 10, 4) + 3 * 4e-3));
  // A batch below one stream does not exist.
  CHECK(model.decode_seconds(100, 10, 0) == model.decode_seconds(100, 10, 1));
}

TEST_CASE("cost model: parts of a prompt add up, and more is never cheaper") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto model = make(small_cpu);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t end = random() % 200'000, middle = random() % (end + 1);
    CHECK(model.prefill_mu(end, middle) + model.prefill_mu(middle, 0) ==
          Approx(model.prefill_mu(end, 0)));
    const std::uint32_t out = random() % 10'000, first = random() % (out + 1);
    // An attempt that goes on after `first` tokens has them in its context.
    CHECK(model.decode_mu(end, first) + model.decode_mu(end + first, out - first) ==
          Approx(model.decode_mu(end, out)));
    CHECK(model.mu({end, middle, out, 0}) <= model.mu({end, middle, out + 1, 0}));
    CHECK(model.mu({end, middle, out, 0}) <= model.mu({end, middle / 2, out, 0}));
  }
  // What claims to be cached beyond the prompt costs nothing, not less.
  CHECK(model.prefill_mu(10, 50) == 0);
}

TEST_CASE("cost model: the longest prompts neither overflow nor lose a token") {
  const auto model = make({1e-6, 1e-12, 1e-5, 0, 1e-9, 0});
  const auto longest = std::numeric_limits<std::uint32_t>::max();
  CHECK(model.prefill_seconds(longest, 0) == Approx(1e-6 * 4294967295.0 + 1e-12 * 1.8446744e19));
  CHECK(model.prefill_seconds(longest, longest - 1) ==
        Approx(1e-6 + 1e-12 * (2.0 * 4294967295.0 - 1)));
}

TEST_CASE("cost model: a slower class has the same units and more seconds") {
  coefficients slow = small_cpu;
  for (auto* c : {&slow.alpha, &slow.alpha2, &slow.beta, &slow.beta_step, &slow.gamma, &slow.image})
    *c *= 3;
  const auto a = make(small_cpu), b = make(slow);
  const request_shape r{777, 100, 88, 0};
  CHECK(b.mu(r) == Approx(a.mu(r)));
  CHECK(b.seconds_per_mu() == Approx(3 * a.seconds_per_mu()));
}

TEST_CASE("cost model: what cannot be is refused, by name") {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto infinity = std::numeric_limits<double>::infinity();
  const auto refused = [](const coefficients& c, double batch = 1) {
    auto made = cost_model::make(c, {"", batch, provenance::calibrated, "", 0});
    REQUIRE_FALSE(made);
    CHECK(made.error().code == "bad_cost_model");
    return made.error().parameter;
  };
  CHECK(refused({-1e-9, 0, 1, 0, 0, 0}) == "alpha");
  CHECK(refused({1, nan, 1, 0, 0, 0}) == "alpha2");
  CHECK(refused({1, 0, infinity, 0, 0, 0}) == "beta");
  CHECK(refused({1, 0, 1, -1, 0, 0}) == "beta_step");
  CHECK(refused({1, 0, 1, 0, -1, 0}) == "gamma");
  CHECK(refused({1, 0, 1, 0, 0, -1}) == "image");
  CHECK(refused({1, 0, 1, 0, 0, 0}, 0.5) == "usual_batch");
  CHECK(refused({1, 0, 1, 0, 0, 0}, nan) == "usual_batch");
  CHECK(refused({0, 0, 0, 0, 0, 1}).empty());
}

TEST_CASE("cost model: from an engine's speeds, and it says what it knows") {
  const auto measured = cost_model::from_speeds(450, 58, "cpu", "both/gemma/h0.0");
  CHECK(measured.origin() == provenance::measured);
  CHECK(measured.seconds_per_mu() == Approx(3'500 / 450.0 + 300 / 58.0));
  CHECK(measured.about().source == "both/gemma/h0.0");
  const auto half = cost_model::from_speeds(450, 0, "cpu", "x");
  CHECK(half.origin() == provenance::assumed);
  CHECK(half.prefill_seconds(450, 0) == Approx(1));
  CHECK(half.decode_seconds(0, 9, 1) == Approx(1));  // fifty prompt tokens' time each
  const auto other_half = cost_model::from_speeds(0, 10, "cpu", "x");
  CHECK(other_half.origin() == provenance::assumed);
  CHECK(other_half.prefill_seconds(500, 0) == Approx(1));
  CHECK(cost_model::from_speeds(std::numeric_limits<double>::infinity(), -3, "", "") ==
        cost_model::assumed());
  CHECK(cost_model::assumed().origin() == provenance::assumed);
  CHECK(to_string(provenance::measured) == "measured");
}

TEST_CASE("ledgers: one attempt without repetition costs the tenant what it costs the engines") {
  const auto model = make(small_cpu);
  const std::array once{attempt(1'000, 200, 1'000, 50)};
  CHECK(tenant_charge_mu(model, 1'000, 200, 50, once) == Approx(model.mu({1'000, 200, 50, 0})));
  CHECK(physical_mu(model, once) == Approx(model.mu({1'000, 200, 50, 0})));
  CHECK(tenant_charge_mu(model, 1'000, 0, 0, {}) == 0);
  CHECK(physical_mu(model, {}) == 0);
}

TEST_CASE("ledgers: a failover's repetitions are the engines' load, not the tenant's") {
  const auto model = make(small_cpu);
  // Lost after 30 tokens, 5 of which nobody got; the next computes prompt and answer again.
  const std::array twice{attempt(1'000, 200, 1'000, 35), attempt(1'030, 0, 1'030, 20, 0.5)};
  // The second attempt computed the 200 that had been cached: they stay free.
  CHECK(tenant_charge_mu(model, 1'000, 200, 50, twice) == Approx(model.mu({1'000, 200, 50, 0})));
  CHECK(physical_mu(model, twice) ==
        Approx(model.prefill_mu(1'000, 200) + model.decode_mu(1'000, 35) +
               model.prefill_mu(1'030, 0) + model.decode_mu(1'030, 20) +
               0.5 / model.seconds_per_mu()));
  // Where the second finds the first one's KV the tenant pays the first one's work.
  const std::array found{attempt(1'000, 200, 1'000, 30), attempt(1'030, 1'000, 1'030, 20)};
  CHECK(tenant_charge_mu(model, 1'000, 200, 50, found) == Approx(model.mu({1'000, 200, 50, 0})));
}

TEST_CASE("ledgers: what a pre-emption has computed again is the engines' load, not the tenant's") {
  const auto model = make(small_cpu);
  auto again = attempt(1'000, 200, 1'000, 50);
  const auto repeated = attempt(0, 0, 1'020, 0);
  again.computed_tokens += repeated.computed_tokens;
  again.computed_context += repeated.computed_context;
  CHECK(tenant_charge_mu(model, 1'000, 200, 50, std::array{again}) ==
        Approx(model.mu({1'000, 200, 50, 0})));
  CHECK(physical_mu(model, std::array{again}) ==
        Approx(model.mu({1'000, 200, 50, 0}) + model.prefill_mu(1'020, 0)));
}

TEST_CASE("ledgers: a cancelled prompt is paid as far as it was computed") {
  const auto model = make(small_cpu);
  const std::array partly{attempt(1'000, 200, 600, 0)};
  CHECK(tenant_charge_mu(model, 1'000, 200, 0, partly) == Approx(model.prefill_mu(600, 200)));
  CHECK(physical_mu(model, partly) == Approx(model.prefill_mu(600, 200)));
  const std::array never_began{attempt(1'000, 200, 0, 0)};
  CHECK(tenant_charge_mu(model, 1'000, 200, 0, never_began) == 0);
  CHECK(physical_mu(model, never_began) == 0);
}

TEST_CASE("ledgers: the tenant never pays more than the engines did, nor more than the request") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto model = make(small_cpu);
  for (int i = 0; i < 1'000; ++i) {
    const std::uint32_t prompt = 1 + random() % 5'000, cached = random() % (prompt + 1);
    std::uint32_t delivered = 0;
    std::vector<attempt_work> attempts;
    for (auto n = random() % 5; n > 0; --n) {
      const std::uint32_t context = prompt + delivered, from = random() % (context + 1),
                          to = random() % (context + 1);
      const std::uint32_t out = to == context ? random() % 100 : 0;
      attempts.push_back(attempt(context, from, to, out));
      delivered += out == 0 ? 0 : random() % (out + 1);
    }
    const auto charge = tenant_charge_mu(model, prompt, cached, delivered, attempts);
    CHECK(charge >= 0);
    CHECK(charge <= physical_mu(model, attempts) * (1 + 1e-9));
    CHECK(charge <= model.mu({prompt, cached, delivered, 0}) * (1 + 1e-9));
  }
}
