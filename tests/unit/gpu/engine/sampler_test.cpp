#include "gpu/engine/logit_scan.hpp"
#include "gpu/engine/philox.hpp"
#include "gpu/engine/sampler.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace troupe;
using namespace troupe::engine;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Lets through the tokens of a set, and counts how it is asked.
class only final : public text::constraint {
 public:
  explicit only(std::set<token_id> allowed) : allowed_(std::move(allowed)) {}
  bool allows(token_id token) override { return allowed_.contains(token); }
  void mask(std::span<std::pair<token_id, float>> candidates) override {
    ++masks;
    for (auto& [id, logit] : candidates)
      if (!allowed_.contains(id)) logit = -inf;
  }
  void accept(token_id) override {}
  int masks = 0;

 private:
  std::set<token_id> allowed_;
};

std::vector<double> softmax(const std::vector<float>& logits, double temperature = 1) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) sum += p.emplace_back(std::exp(x / temperature));
  for (auto& x : p) x /= sum;
  return p;
}

std::vector<double> frequencies(const sampling& how, const std::vector<float>& logits,
                                text::constraint* limits = nullptr, int draws = 40'000) {
  sampler s(how, 0, {});
  sampler_scratch scratch;
  std::vector<double> out(logits.size());
  for (int i = 0; i < draws; ++i)
    out[static_cast<std::size_t>(
        *s.choose(logits, static_cast<std::uint32_t>(i), limits, scratch))] += 1.0 / draws;
  return out;
}

/// Pearson's chi-squared against expected probabilities, as a number of standard deviations of its
/// distribution (about normal for these sizes).
double excess(const std::vector<double>& seen, const std::vector<double>& expected,
              int draws = 40'000) {
  double chi = 0;
  int freedom = -1;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (expected[i] == 0) {
      REQUIRE(seen[i] == 0);
      continue;
    }
    chi += draws * (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i];
    ++freedom;
  }
  return (chi - freedom) / std::sqrt(2.0 * std::max(1, freedom));
}

const std::vector<float> some_logits{2.0F, 1.0F, 0.5F, 0.0F, -1.0F, 1.5F, -2.0F, 0.7F};

sampling with_seed(std::uint64_t seed) {
  sampling how;
  how.seed = seed;
  return how;
}

}  // namespace

TEST_CASE("philox: the known answers of Random123") {
  using c = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == c{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        c{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        c{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(unit_interval(0xffffffff, 0xffffffff) < 1.0);
  CHECK(unit_interval(0, 0) == 0.0);
}

TEST_CASE("sampler: temperature 0 takes the highest, the lowest id on ties") {
  sampling how;
  how.temperature = 0;
  sampler s(how, 0, {});
  sampler_scratch scratch;
  CHECK(s.takes_highest());
  CHECK(*s.choose(std::vector<float>{0, 3, 1, 3}, 0, nullptr, scratch) == 1);
  CHECK(*s.choose(std::vector<float>{-inf, -inf, -5}, 0, nullptr, scratch) == 2);
  CHECK(*s.choose(std::vector<float>{-0.0F, 0.0F}, 0, nullptr, scratch) == 0);
}

TEST_CASE("sampler: logits that are no numbers are an error, wherever they stand") {
  for (const float temperature : {0.0F, 1.0F}) {
    sampling how;
    how.temperature = temperature;
    sampler s(how, 0, {});
    sampler_scratch scratch;
    for (std::size_t at = 0; at < 70; at += 3) {
      for (const float bad : {not_a_number, inf}) {
        std::vector<float> logits(70, 1.0F);
        logits[at] = bad;
        const auto got = s.choose(logits, 0, nullptr, scratch);
        REQUIRE_FALSE(got);
        REQUIRE(got.error().code == "garbage_output");
      }
    }
    CHECK(s.choose(std::vector<float>(10, -inf), 0, nullptr, scratch).error().code ==
          "garbage_output");
    CHECK(s.choose(std::vector<float>(10, not_a_number), 0, nullptr, scratch).error().code ==
          "garbage_output");
  }
}

TEST_CASE("sampler: the frequencies are the model's probabilities, tempered") {
  auto how = with_seed(42);
  CHECK(excess(frequencies(how, some_logits), softmax(some_logits)) < 4);
  how.temperature = 0.5F;
  CHECK(excess(frequencies(how, some_logits), softmax(some_logits, 0.5)) < 4);
  how.temperature = 2;
  CHECK(excess(frequencies(how, some_logits), softmax(some_logits, 2)) < 4);
  how.temperature = 1;
  how.top_p = 0.9999F;  // another path to nearly the same
  const auto cut = frequencies(how, some_logits);
  for (std::size_t i = 0; i < cut.size(); ++i)
    CHECK(cut[i] == Approx(softmax(some_logits)[i]).margin(0.012));
}

TEST_CASE("sampler: top_k, top_p and min_p keep exactly what they should") {
  const auto p = softmax(some_logits);
  const auto kept = [&](std::vector<std::size_t> ids) {
    std::vector<double> out(p.size());
    double sum = 0;
    for (const auto i : ids) sum += p[i];
    for (const auto i : ids) out[i] = p[i] / sum;
    return out;
  };
  auto how = with_seed(7);
  SECTION("top_k") {
    how.top_k = 3;
    CHECK(excess(frequencies(how, some_logits), kept({0, 5, 1})) < 4);
  }
  SECTION("top_k above the vocabulary") {
    how.top_k = 1000;
    CHECK(excess(frequencies(how, some_logits), p) < 4);
  }
  SECTION("top_p: the smallest set that reaches it") {
    how.top_p = static_cast<float>(p[0] + p[5] + 0.01);
    CHECK(excess(frequencies(how, some_logits), kept({0, 5, 1})) < 4);
  }
  SECTION("top_p of almost nothing is greedy") {
    how.top_p = 1e-6F;
    CHECK(frequencies(how, some_logits)[0] == Approx(1));
  }
  SECTION("top_p 0") {
    how.top_p = 0;
    CHECK(frequencies(how, some_logits)[0] == Approx(1));
  }
  SECTION("min_p: relative to the likeliest") {
    how.min_p = static_cast<float>(p[1] / p[0] * 0.99);
    CHECK(excess(frequencies(how, some_logits), kept({0, 5, 1})) < 4);
  }
  SECTION("min_p 1") {
    how.min_p = 1;
    CHECK(frequencies(how, some_logits)[0] == Approx(1));
  }
  SECTION("all together: top_p of what top_k left") {
    how.top_k = 4;
    how.min_p = 0.01F;
    how.top_p = static_cast<float>((p[0] + p[5]) / (p[0] + p[5] + p[1] + p[7]) - 0.001);
    CHECK(excess(frequencies(how, some_logits), kept({0, 5})) < 4);
  }
}

TEST_CASE("sampler: a constraint gives the distribution of masking first") {
  only allowed({1, 3, 6});
  const auto p = softmax(some_logits);
  std::vector<double> expected(p.size());
  for (const auto i : {1U, 3U, 6U}) expected[i] = p[i] / (p[1] + p[3] + p[6]);
  CHECK(excess(frequencies(with_seed(3), some_logits, &allowed), expected) < 4);
}

TEST_CASE("sampler: a constraint at temperature 0 gets the best of what it allows, and is asked "
          "for all only when it must be") {
  std::mt19937 random(5);
  std::vector<float> logits(3000);
  for (auto& x : logits) x = static_cast<float>(random() % 1000) / 10;
  sampling how;
  how.temperature = 0;
  sampler s(how, 0, {});
  sampler_scratch scratch;
  for (int round = 0; round < 50; ++round) {
    std::set<token_id> ids;
    for (int i = 0; i < 1 + round; ++i) ids.insert(static_cast<token_id>(random() % logits.size()));
    only limits(ids);
    const auto best = *std::min_element(ids.begin(), ids.end(), [&](token_id a, token_id b) {
      const auto x = logits[static_cast<std::size_t>(a)];
      const auto y = logits[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
    REQUIRE(*s.choose(logits, 0, &limits, scratch) == best);
  }
  only favourite({extent(logits).first});
  CHECK(s.choose(logits, 0, &favourite, scratch));
  CHECK(favourite.masks == 0);
  only nothing({});
  CHECK(s.choose(logits, 0, &nothing, scratch).error().code == "constraint_dead_end");
  CHECK(sampler(with_seed(1), 0, {}).choose(logits, 0, &nothing, scratch).error().code ==
        "constraint_dead_end");
}

TEST_CASE("sampler: bias, penalties and bans move logits as documented") {
  sampling how;
  how.temperature = 0;
  sampler_scratch scratch;
  const std::vector<float> logits{3.0F, 2.0F, 1.0F};
  how.logit_bias = {{2, 5.0F}, {77, 100.0F}, {-4, 100.0F}};  // foreign ids are harmless
  CHECK(*sampler(how, 0, {}).choose(logits, 0, nullptr, scratch) == 2);
  how.logit_bias = {{0, -100.0F}};
  CHECK(*sampler(how, 0, {}).choose(logits, 0, nullptr, scratch) == 1);
  how.logit_bias = {};
  const std::vector<token_id> banned{0, 1};
  CHECK(*sampler(how, 0, banned).choose(logits, 0, nullptr, scratch) == 2);
  const std::vector<token_id> all{0, 1, 2};
  CHECK(sampler(how, 0, all).choose(logits, 0, nullptr, scratch).error().code ==
        "constraint_dead_end");

  how.presence_penalty = 0.6F;
  how.frequency_penalty = 0.3F;
  sampler s(how, 0, {});
  CHECK(s.takes_highest());  // nothing generated yet
  s.accept(0);
  CHECK_FALSE(s.takes_highest());
  CHECK(*s.choose(logits, 1, nullptr, scratch) == 0);  // 3 - 0.9 = 2.1
  s.accept(0);
  CHECK(*s.choose(logits, 2, nullptr, scratch) == 1);  // 3 - 1.2 = 1.8
  how.presence_penalty = -2;                           // a reward
  how.frequency_penalty = 0;
  sampler r(how, 0, {});
  r.accept(1);
  CHECK(*r.choose(logits, 1, nullptr, scratch) == 1);
}

TEST_CASE("sampler: the draw for a token depends on seed, choice and index, and on nothing that "
          "came before") {
  std::vector<float> logits(500);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 17) / 5;
  sampler_scratch scratch;
  sampler a(with_seed(1), 0, {});
  std::vector<token_id> in_order;
  for (std::uint32_t i = 0; i < 50; ++i) in_order.push_back(*a.choose(logits, i, nullptr, scratch));
  sampler b(with_seed(1), 0, {});
  for (std::uint32_t i = 50; i > 0; --i)
    CHECK(*b.choose(logits, i - 1, nullptr, scratch) == in_order[i - 1]);
  int same_choice = 0;
  int same_seed = 0;
  int same_high_seed = 0;
  for (std::uint32_t i = 0; i < 50; ++i) {
    same_choice += *sampler(with_seed(1), 1, {}).choose(logits, i, nullptr, scratch) == in_order[i]
                       ? 1
                       : 0;
    same_seed += *sampler(with_seed(2), 0, {}).choose(logits, i, nullptr, scratch) == in_order[i]
                     ? 1
                     : 0;
    same_high_seed +=
        *sampler(with_seed(1 + (1ULL << 32U)), 0, {}).choose(logits, i, nullptr, scratch) ==
                in_order[i]
            ? 1
            : 0;
  }
  CHECK(same_choice < 10);
  CHECK(same_seed < 10);
  CHECK(same_high_seed < 10);
}

TEST_CASE("sampler: a vocabulary of 262,144 with tiny probabilities in its tail") {
  std::vector<float> logits(262'144, -9.0F);
  logits[200'000] = 5;
  logits[7] = 5;
  auto how = with_seed(9);
  how.top_p = 0.5F;
  sampler s(how, 0, {});
  sampler_scratch scratch;
  std::map<token_id, int> seen;
  for (std::uint32_t i = 0; i < 60; ++i) ++seen[*s.choose(logits, i, nullptr, scratch)];
  CHECK(seen.size() == 2);
  how.top_p = 1;
  sampler whole(how, 0, {});
  int tail = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    const auto id = *whole.choose(logits, i, nullptr, scratch);
    tail += id != 7 && id != 200'000 ? 1 : 0;
  }
  CHECK(tail > 0);  // the tail weighs a tenth in all
}

TEST_CASE("logprobs: those of the model itself, likeliest first, never an infinity") {
  sampler_scratch scratch;
  const auto piece = [](token_id id) { return std::string(1, static_cast<char>('a' + id)); };
  const auto got = logprob_of(some_logits, 4, 3, piece, scratch);
  const auto p = softmax(some_logits);
  CHECK(got.chosen.id == 4);
  CHECK(got.chosen.bytes == "e");
  CHECK(got.chosen.logprob == Approx(std::log(p[4])).epsilon(1e-5));
  REQUIRE(got.top.size() == 3);
  CHECK(got.top[0].id == 0);
  CHECK(got.top[1].id == 5);
  CHECK(got.top[2].id == 1);
  CHECK(got.top[1].logprob == Approx(std::log(p[5])).epsilon(1e-5));
  const auto impossible = logprob_of(std::vector<float>{1, -inf}, 1, 5, piece, scratch);
  CHECK(impossible.chosen.logprob == -9999);
  CHECK(impossible.top.size() == 1);
}

TEST_CASE("logit scans: the same as the obvious ways, for all sizes around the width of a vector") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (std::size_t size = 1; size < 80; ++size) {
    std::vector<float> logits(size);
    for (auto& x : logits) x = random() % 9 == 0 ? -inf : static_cast<float>(random() % 60) - 30;
    logits[random() % size] = 3;
    const auto found = extent(logits);
    REQUIRE(found.sane);
    REQUIRE(found.highest == *std::max_element(logits.begin(), logits.end()));
    REQUIRE(found.first == std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::vector<std::pair<token_id, float>> all;
    for (std::size_t i = 0; i < size; ++i)
      if (logits[i] > -inf) all.emplace_back(static_cast<token_id>(i), logits[i]);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    const auto count = 1 + random() % 90;
    std::vector<std::pair<token_id, float>> got;
    gather_highest(logits, found.highest, count, got);
    all.resize(std::min(all.size(), count));
    REQUIRE(got == all);
  }
}

TEST_CASE("logit scans: masses are those of exp, and what is negligible is never chosen") {
  std::mt19937 random(11);
  for (const float temperature : {0.1F, 1.0F, 3.0F, 1e-30F, 1e30F}) {
    std::vector<float> logits(5000);
    for (auto& x : logits)
      x = random() % 9 == 0 ? -inf : static_cast<float>(random() % 60'000) / 1000 - 30;
    const auto highest = extent(logits).highest;
    double sum = 0;
    std::set<token_id> heavy;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto x = (static_cast<double>(logits[i]) - highest) / temperature;
      if (x >= -negligible_below) {
        sum += std::exp(x);
        heavy.insert(static_cast<token_id>(i));
      }
    }
    const auto got = mass(logits, highest, temperature);
    CHECK(got == Approx(sum).epsilon(1e-6));
    for (int i = 0; i <= 200; ++i)
      REQUIRE(heavy.contains(draw_by_mass(logits, highest, temperature, i / 200.0)));
  }
}
