#pragma once

#include "actors/capacity/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <vector>

namespace troupe::request {

/// Lengths of requests as in the Mooncake conversation trace, at a smaller scale: log-normal with
/// p99 / p50 = 12 for prompts and 7 for answers, so that the dearest in a hundred cost as much as
/// all of the cheaper half together.
struct request_lengths {
  double prompt_median = 1'000, prompt_sigma = 1.07;
  double answer_median = 150, answer_sigma = 0.85;
  std::uint32_t prompt_max = 60'000, answer_max = 2'000;

  std::uint32_t prompt(std::mt19937_64& draw) const {
    return drawn(draw, prompt_median, prompt_sigma, prompt_max);
  }
  std::uint32_t answer(std::mt19937_64& draw) const {
    return drawn(draw, answer_median, answer_sigma, answer_max);
  }

 private:
  static std::uint32_t drawn(std::mt19937_64& draw, double median, double sigma,
                             std::uint32_t most) {
    const auto x = std::lognormal_distribution<>{std::log(median), sigma}(draw);
    return static_cast<std::uint32_t>(std::clamp<double>(x, 1, most));
  }
};

/// Engines of one model as a time model: a prompt at a time in each, answers in its slots at one
/// speed. No threads.
class overload_engines {
 public:
  struct options {
    std::uint32_t engines = 4;
    std::uint32_t slots = 16;             ///< of each
    double prompt_token_s = 1.0 / 6'000;  ///< per token that is prefilled
    double token_s = 0.025;               ///< between two tokens of an answer
  };
  struct event {
    double at = 0;  ///< s
    std::size_t gateway = 0;
    std::uint64_t id = 0;
    bool ended = false;  ///< else: the first token
    bool operator>(const event& o) const { return at > o.at; }
  };

  explicit overload_engines(options o) : options_(o), busy_until_(o.engines) {}

  void begin(std::size_t gateway, std::uint64_t id, std::uint32_t prompt, std::uint32_t answer,
             double now) {
    auto& engine = *std::min_element(busy_until_.begin(), busy_until_.end());
    engine = std::max(engine, now) + prompt * options_.prompt_token_s;
    events_.push({engine, gateway, id, false});
    events_.push({engine + answer * options_.token_s, gateway, id, true});
    ++running_;
  }
  /// What has happened by now, in order.
  bool next(double now, event& out) {
    if (events_.empty() || events_.top().at > now) return false;
    out = events_.top();
    events_.pop();
    running_ -= out.ended ? 1 : 0;
    return true;
  }
  std::uint32_t running() const { return running_; }
  std::uint32_t slots() const { return options_.engines * options_.slots; }
  const options& about() const { return options_; }

  struct rate {
    double requests = 0, mu = 0;  ///< per second
  };
  /// What the engines can serve of these lengths; `size`: of prompts, in those.
  rate capacity(const request_lengths& l, double size, std::mt19937_64 draw) const {
    constexpr int samples = 20'000;
    const auto costs = price();
    double prompts = 0, answers = 0, mu = 0;
    for (int i = 0; i < samples; ++i) {
      const auto prompt = static_cast<std::uint32_t>(size * l.prompt(draw));
      const auto answer = l.answer(draw);
      prompts += prompt;
      answers += answer;
      mu += costs.mu({prompt, 0, answer, 0});
    }
    const double prefill = prompts / samples * options_.prompt_token_s;
    const double stay = prefill + answers / samples * options_.token_s;
    const double requests = std::min(options_.engines / prefill, slots() / stay);
    return {requests, requests * mu / samples};
  }
  /// Priced as `troupe bench calibrate` would.
  capacity::cost_model price() const {
    capacity::coefficients c;
    c.alpha = options_.prompt_token_s;
    c.beta = options_.token_s / options_.slots;
    return *capacity::cost_model::make(
        c, {"simulated", 1.0 * options_.slots, capacity::provenance::calibrated, "time model", 0});
  }

 private:
  options options_;
  std::vector<double> busy_until_;
  std::priority_queue<event, std::vector<event>, std::greater<>> events_;
  std::uint32_t running_ = 0;
};

}  // namespace troupe::request
