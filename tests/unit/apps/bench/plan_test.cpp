#include "apps/bench/plan.hpp"

#include "apps/bench/prompts.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

using namespace troupe::bench;
using namespace std::chrono_literals;

namespace {

std::vector<planned_request> all_of(plan p) {
  std::vector<planned_request> out;
  while (auto r = p.next()) out.push_back(*std::move(r));
  return out;
}

std::size_t common_prefix(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(),
                    a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
}

}  // namespace

TEST_CASE("Poisson arrivals have the rate and the spread of the distribution", "[bench]") {
  plan_options o;
  o.rate_per_s = 100;
  o.requests_max = 20'000;
  const auto requests = all_of(plan{o});
  REQUIRE(requests.size() == 20'000);
  double sum = 0;
  double squares = 0;
  auto last = 0ns;
  for (const auto& r : requests) {
    REQUIRE(r.at >= last);
    const auto gap = static_cast<double>((r.at - last).count()) / 1e9;
    sum += gap;
    squares += gap * gap;
    last = r.at;
  }
  const auto mean = sum / 20'000;
  // Four standard errors; an exponential distribution's deviation equals its mean.
  CHECK(mean == Approx(0.01).epsilon(4.0 / std::sqrt(20'000.0)));
  CHECK(std::sqrt(squares / 20'000 - mean * mean) == Approx(mean).epsilon(0.1));
}

TEST_CASE("the seed decides the plan", "[bench]") {
  plan_options o;
  o.rate_per_s = 10;
  o.requests_max = 50;
  o.prompt_bytes = {10, 1000};
  o.max_tokens = {1, 9};
  o.prefixes = 5;
  const auto a = all_of(plan{o});
  const auto b = all_of(plan{o});
  o.seed = 2;
  const auto c = all_of(plan{o});
  const auto same = [](const planned_request& x, const planned_request& y) {
    return x.at == y.at && x.prompt_bytes == y.prompt_bytes && x.max_tokens == y.max_tokens &&
           x.prefix == y.prefix;
  };
  CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end(), same));
  CHECK_FALSE(std::equal(a.begin(), a.end(), c.begin(), c.end(), same));
}

TEST_CASE("lengths cover their range and nothing else", "[bench]") {
  plan_options o;
  o.requests_max = 2'000;
  o.max_tokens = {3, 6};
  o.prompt_bytes = {7, 7};
  o.prefixes = 2;
  std::set<std::uint32_t> lengths;
  std::set<std::uint64_t> prefixes;
  for (const auto& r : all_of(plan{o})) {
    lengths.insert(r.max_tokens);
    prefixes.insert(r.prefix);
    REQUIRE(r.prompt_bytes == 7);
    REQUIRE(r.at == 0ns);
  }
  CHECK(lengths == std::set<std::uint32_t>{3, 4, 5, 6});
  CHECK(prefixes == std::set<std::uint64_t>{0, 1});
}

TEST_CASE("a plan ends with its duration or its count", "[bench]") {
  plan_options o;
  o.rate_per_s = 1'000;
  o.duration = 100ms;
  const auto requests = all_of(plan{o});
  CHECK(requests.size() > 50);
  CHECK(requests.size() < 200);
  CHECK(requests.back().at <= 100ms);
  o.requests_max = 5;
  CHECK(all_of(plan{o}).size() == 5);
}

TEST_CASE("a rate next to nothing brings nothing, at no impossible time", "[bench]") {
  plan_options o;
  o.rate_per_s = 1e-300;
  o.requests_max = 3;
  o.duration = 1s;
  CHECK_FALSE(plan{o}.next());
  o.duration = nanoseconds::max();
  plan p{o};
  for (int i = 0; i < 3; ++i) CHECK(p.next()->at > 24h);
}

TEST_CASE("a trace is played at its times, faster if asked", "[bench]") {
  plan_options o;
  o.trace = {{0s, 100, 10, {}}, {2s, 200, 0, {}}, {4s, 300, 1'000, {1, 2}}};
  o.speedup = 2;
  o.bytes_per_token = 3;
  o.max_tokens = {1, 64};
  const auto requests = all_of(plan{o});
  REQUIRE(requests.size() == 3);
  CHECK(requests[1].at == 1s);
  CHECK(requests[2].at == 2s);
  CHECK(requests[0].prompt_bytes == 300);
  CHECK(requests[0].max_tokens == 10);
  CHECK(requests[1].max_tokens == 1);
  CHECK(requests[2].max_tokens == 64);
  CHECK(requests[2].blocks == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("prompts have their length, and are the same for the same seed", "[bench]") {
  const prompt_maker maker{1, 0, 1};
  const prompt_maker again{1, 0, 1};
  const prompt_maker other{2, 0, 1};
  planned_request r;
  r.index = 3;
  for (const std::uint32_t bytes : {1U, 5U, 100U, 3'000'000U}) {
    r.prompt_bytes = bytes;
    const auto text = maker.make(r);
    CHECK(text.size() == bytes);
    CHECK(text == again.make(r));
    CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; }));
  }
  CHECK(maker.make(r) != other.make(r));
}

TEST_CASE("prompts share what they should, and no more", "[bench]") {
  const prompt_maker maker{1, 1'000, 1};
  planned_request a;
  a.index = 1;
  a.prompt_bytes = 2'000;
  auto b = a;
  b.index = 2;
  auto c = b;
  c.prefix = 1;
  CHECK(common_prefix(maker.make(a), maker.make(b)) >= 1'000);
  CHECK(common_prefix(maker.make(a), maker.make(b)) < 1'010);
  CHECK(common_prefix(maker.make(b), maker.make(c)) < 10);
  b.prompt_bytes = 500;
  CHECK(maker.make(b).size() == 500);

  const prompt_maker whole{1, 0, 1};
  CHECK(common_prefix(whole.make(a), whole.make(c)) < 10);
}

TEST_CASE("prompts of a trace share its blocks", "[bench]") {
  const prompt_maker maker{1, 0, 100};
  planned_request a;
  a.prompt_bytes = 350;
  a.blocks = {5, 6, 7, 8};
  auto b = a;
  b.index = 1;
  b.blocks = {5, 6, 9, 8};
  CHECK(maker.make(a).size() == 350);
  CHECK(common_prefix(maker.make(a), maker.make(b)) >= 200);
  CHECK(common_prefix(maker.make(a), maker.make(b)) < 210);
}
