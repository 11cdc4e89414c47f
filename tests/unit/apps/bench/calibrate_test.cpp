#include "apps/bench/calibrate.hpp"
#include "apps/bench/calibration_plan.hpp"
#include "apps/bench/cost_reading.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

using namespace troupe;
using namespace troupe::bench;

// How this can fail: what is held out are points that were fitted; a cost that was not measured at
// one go is fitted to; a capacity beyond the objective is reported.

namespace {

const char* settled = R"({"id":"r","model":"m","status":"done","attempts":[{"plan":"local"}],
"prompt_tokens":100,"cached_tokens":40,"completion_tokens":8,"total_ms":5,
"cost":{"prefill_ms":6,"decode_ms":8.5,"transfer_ms":0,"computed_tokens":59,"computed_context":4071,
"sampled_tokens":8,"sampled_context":828,"step_shares":2.5,"guessed":false}})";

std::string with(std::string text, const std::string& what, const std::string& instead) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), instead);
}

std::string worker(const char* role, const char* device, const char* idle = "true",
                   const char* model = "m", const char* ready = "true") {
  return std::string{R"({"name":"w","role":")"} + role + R"(","model":")" + model +
         R"(","ready":)" + ready + R"(,"device_class":")" + device + R"(","idle":)" + idle + "}";
}

std::string workers(const std::vector<std::string>& all) {
  std::string out = R"({"workers":[)";
  for (const auto& w : all) out += (out.back() == '[' ? "" : ",") + w;
  return out + "]}";
}

}  // namespace

TEST_CASE("calibrate: the sweep has every combination, each with several rounds", "[bench]") {
  calibration_scope scope;
  scope.engines = 2;
  const auto all = sweep_of(scope);
  CHECK(all.size() == 3 * 3 * 2 + 1);
  std::set<std::string> names;
  for (const auto& w : all) {
    names.insert(w.name);
    CHECK(w.requests.size() >= 2 * w.concurrency);
    CHECK(w.requests.size() <= workload_requests_max);
    CHECK(std::all_of(w.requests.begin(), w.requests.end(),
                      [&](const auto& r) { return r == w.requests.front(); }));
  }
  CHECK(names.size() == all.size());
  CHECK(all.front().concurrency == 2);
  CHECK(std::count_if(all.begin(), all.end(), [](const auto& w) { return w.shared > 0; }) == 1);
}

TEST_CASE("calibrate: what is held out is mixed, within the sweep's lengths, and no point of it",
          "[bench]") {
  calibration_scope scope;
  scope.held_out = 200;
  const auto all = held_out_of(scope);
  REQUIRE(all.size() == 4);
  CHECK(all.back().shared > 0);
  for (const auto& w : all) {
    std::set<std::uint32_t> prompts;
    std::size_t short_ones = 0;
    for (const auto& r : w.requests) {
      CHECK((r.prompt >= 64 && r.prompt <= 1'024));
      CHECK((r.output >= 8 && r.output <= 64));
      prompts.insert(r.prompt);
      short_ones += r.prompt < 256 ? 1 : 0;
    }
    CHECK(prompts.size() > 100);
    CHECK(short_ones > 60);  // half of them: evenly over logarithms
    CHECK(short_ones < 140);
  }
  CHECK(all[0].requests != all[1].requests);
  CHECK(held_out_of(scope)[0].requests == all[0].requests);
  scope.seed = 2;
  CHECK(held_out_of(scope)[0].requests != all[0].requests);
}

TEST_CASE("calibrate: loads for the capacity grow by a factor, from one", "[bench]") {
  CHECK(capacity_levels(1) == std::vector<std::uint32_t>{1});
  CHECK(capacity_levels(8) == std::vector<std::uint32_t>{1, 2, 3, 4, 6, 8});
  const auto w = capacity_load({}, 16);
  CHECK(w.concurrency == 16);
  CHECK(w.requests.size() == 80);
}

TEST_CASE("calibrate: a cost is read from a request's timeline", "[bench]") {
  const auto r = read_cost(settled);
  REQUIRE(r);
  CHECK(r->shape == capacity::request_shape{100, 40, 8, 0});
  CHECK(r->prefill_seconds == Approx(0.006));
  CHECK(r->decode_seconds == Approx(0.0085));
  CHECK(r->computed_tokens == 59);
  CHECK(r->computed_context == 4'071);
  CHECK(r->sampled_tokens == 8);
  CHECK(r->sampled_context == 828);
  CHECK(r->step_shares == 2.5);
}

TEST_CASE("calibrate: what was not measured at one go is no measurement", "[bench]") {
  CHECK(read_cost(with(settled, "done", "running")).error().code == "not_settled");
  CHECK(read_cost(with(settled, "\"cost\"", "\"other\"")).error().code == "not_settled");
  for (const auto& text :
       {with(settled, "done", "failed"), with(settled, "\"guessed\":false", "\"guessed\":true"),
        with(settled, "[{\"plan\":\"local\"}]", "[{},{}]"), std::string{"no JSON"}}) {
    CAPTURE(text);
    CHECK(read_cost(text).error().code == "not_measured");
  }
}

TEST_CASE("calibrate: what serves the model is one device class, and idle", "[bench]") {
  auto h = read_hardware(
      workers({worker("prefill", "x"), worker("decode", "x"), worker("both", "other", "false", "n"),
               worker("both", "other", "true", "m", "false")}),
      "m");
  REQUIRE(h);
  CHECK(h->device_class == "x");
  CHECK(h->engines == 1);
  CHECK(h->all_engines == 2);
  CHECK(h->idle);
  CHECK_FALSE(read_hardware(workers({worker("both", "x", "false")}), "m")->idle);
  const std::pair<std::string, const char*> wrong[] = {
      {workers({}), "no_worker"},
      {workers({worker("both", "x", "true", "n")}), "no_worker"},
      {workers({worker("both", "x"), worker("both", "y")}), "several_device_classes"},
      {workers({worker("both", "")}), "unknown_device_class"},
      {"<html>", "no_worker"}};
  for (const auto& [text, code] : wrong) {
    CAPTURE(text);
    CHECK(read_hardware(text, "m").error().code == code);
  }
}

TEST_CASE("calibrate: the capacity is the most that meets the objective", "[bench]") {
  std::vector<capacity_level> levels(4);
  CHECK(best_of(levels) == nullptr);
  for (std::size_t i = 0; i < levels.size(); ++i)
    levels[i].mu_per_minute = 10.0 * static_cast<double>(i + 1);
  levels[0].meets = levels[1].meets = true;
  levels[3].meets = false;
  CHECK(best_of(levels) == &levels[1]);
  levels[1].mu_per_minute = 5;  // more at once was not more
  CHECK(best_of(levels) == &levels[0]);
}

TEST_CASE("calibrate: the level that was chosen stays the capacity when its batch is what counts",
          "[bench]") {
  config::calibration costs;
  costs.device_class = "x";
  costs.alpha = 1e-3;
  costs.beta_step = 0.1;
  costs.usual_batch = 1;
  // Many answers, one by one; and prompts, in large batches.
  std::vector<capacity_level> levels(2);
  for (auto& l : levels) {
    l.meets = true;
    l.minutes = 1;
  }
  levels[0].batch = 8;
  levels[0].requests.assign(10, {10, 0, 100, 0});
  levels[1].batch = 8;
  levels[1].requests.assign(1, {40'000, 0, 1, 0});
  for (auto& l : levels) l.mu_per_minute = mu_per_minute_of(l, costs, 1);
  REQUIRE(best_of(levels) == &levels[0]);
  choose_capacity(levels, costs, 2);
  CHECK(costs.usual_batch == 8);
  CHECK(best_of(levels) == &levels[1]);  // by the new count
  CHECK(levels[0].chosen);
  CHECK_FALSE(levels[1].chosen);
  CHECK(costs.mu_per_minute == levels[0].mu_per_minute);
  // Of each of the engines.
  CHECK(costs.mu_per_minute == Approx(mu_per_minute_of(levels[0], costs, 1) / 2));
}

TEST_CASE("calibrate: the burst at the start of a closed loop is no part of what it measures",
          "[bench]") {
  using namespace std::chrono_literals;
  std::vector<answered_request> all(10);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].planned.index = i;
    all[i].planned.at = i < 4 ? 0s : 10s;
    all[i].what.first_token = i < 4 ? 9s : 1s;
    all[i].what.last_token = all[i].what.end = i < 4 ? 10s : 2s;
  }
  const auto steady = after_the_first(all, 4);
  CHECK(steady.whole == 6);
  CHECK(static_cast<double>(steady.first_token.percentile(95)) == Approx(1e9).epsilon(0.05));
  CHECK(steady.window() == 2s);
}

TEST_CASE("calibrate: a few per cent of a workload may be left out, at least one", "[bench]") {
  CHECK(left_out_max(4) == 1);
  CHECK(left_out_max(100) == 3);
}

TEST_CASE("calibrate: prompts of another run begin with something else, and are as long",
          "[bench]") {
  const prompt_maker shared{1, 1'000, 1}, own{1, 0, 1};
  workload w;
  planned_request r;
  r.prompt_bytes = 600;
  const auto of_run = [&](std::uint32_t run, std::uint64_t number) {
    r.index = prompt_key(run, number);
    return prompt_of(w, shared, own, r);
  };
  const auto alike = [](const std::string& a, const std::string& b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  };
  CHECK(of_run(7, 1) == of_run(7, 1));
  CHECK(of_run(7, 1).size() == 600);
  CHECK(of_run(8, 1).size() == 600);
  CHECK(alike(of_run(7, 1), of_run(8, 1)) < 18);  // within its key
  CHECK(alike(of_run(7, 1), of_run(7, 2)) < 18);
  CHECK(prompt_key(~0U, ~0ULL) < 1ULL << 60U);
  // Half of each, whatever its length.
  w.shared = 0.5;
  const auto longer = [&] {
    r.prompt_bytes = 2'000;
    return of_run(7, 3);
  };
  const auto first = of_run(7, 1), second = of_run(7, 2), third = longer();
  CHECK(alike(first, second) >= 300);
  CHECK(alike(first, second) < 318);
  CHECK(alike(first, third) >= 300);
  CHECK(alike(first, third) < 318);
  CHECK(third.size() == 2'000);
}
