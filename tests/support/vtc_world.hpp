#pragma once

#include "actors/admission/gate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::admission {

/// Two tenants who share one gate and its places by the virtual token counter, and what they really
/// get: a request's input counts when it begins, its output bit by bit, as in the paper (Sheng et
/// al., OSDI'24). All service is in MU by weight. A fake clock; by seed.
class vtc_world {
 public:
  struct options {
    double ratio = 10;  ///< of the first one's requests to the other's
    std::array<double, 2> weights{1, 1};
    std::uint32_t places = 4;
    double guess_error = 0.3;  ///< what is reserved is wrong by up to this part
    bool pauses = false;       ///< now and then one has nothing to ask for
    std::uint64_t seed = 1;
    int steps = 4'000;
  };

  explicit vtc_world(options o)
      : options_(o), draw_(o.seed), gate_(limits_of(o), "g", {"g"}, 1, time_point{}) {
    gate_.supply("m", {o.places, 0, std::uint64_t{1} << 40U, 1, o.places}, 1);
  }

  void run() {
    std::array<bool, 2> paused{};
    for (int step = 0; step < options_.steps; ++step) {
      if (options_.pauses && step % 400 == 200) {
        paused = {};
        if (const auto who = draw_() % 3; who < 2) paused.at(who) = true;
      }
      now_ += milliseconds{50};
      for (std::size_t t = 0; t < 2; ++t)
        while (!paused.at(t) && waiting_.at(t) < 2 * options_.places + 2) ask(t);
      for (const auto& v : gate_.pump(now_)) begin(v);
      idle_places_ += waiting_[0] + waiting_[1] > 0 ? options_.places - running_.size() : 0;
      serve(0.05);
    }
  }

  /// The largest difference between the two of what they got in any time in which both had requests
  /// waiting.
  double gap() const { return gap_; }
  /// 2·max(L_in, M): the largest input, and all that ran at a time.
  double bound() const { return 2 * std::max(input_max_, batch_max_); }
  /// Places that were free while somebody waited, summed over steps.
  std::uint64_t idle_places() const { return idle_places_; }
  /// What the first got while both had requests waiting, as a part of what the two got then.
  double first_share() const { return both_[0] / (both_[0] + both_[1]); }

 private:
  struct request {
    std::size_t who = 0;
    double in = 0, out = 0, reserved = 0, done = 0, speed = 1;
  };

  static std::vector<tenant_limits> limits_of(const options& o) {
    std::vector<tenant_limits> out;
    for (std::size_t t = 0; t < 2; ++t) {
      tenant_limits l;
      l.tenant = t == 0 ? "a" : "b";
      l.model = "m";
      l.best_effort_weight = o.weights.at(t);
      l.wait_max = std::chrono::hours{1};
      out.push_back(std::move(l));
    }
    return out;
  }
  double real(double a, double b) { return std::uniform_real_distribution<>{a, b}(draw_); }
  double weight(std::size_t t) const { return options_.weights.at(t); }

  void ask(std::size_t t) {
    const double size = t == 0 ? 10 : 10 / options_.ratio, e = options_.guess_error;
    request r{t, size * real(0.2, 1), size * real(0.2, 1), 0, 0, real(0.5, 2)};
    r.reserved = (r.in + r.out) * real(1 - e, 1 + e);
    refusal why;
    const auto id = ++last_id_;
    if (!gate_.arrive({id, t == 0 ? "a" : "b", "m", r.reserved, 1, now_ + std::chrono::hours{2}},
                      now_, why))
      return;
    ++waiting_.at(t);
    asked_[id] = r;
  }
  void begin(const verdict& v) {
    const auto i = asked_.find(v.id);
    const auto r = i->second;
    asked_.erase(i);
    --waiting_.at(r.who);
    if (v.why) return;
    gate_.prefilled(v.id);
    running_[v.id] = r;
    input_max_ = std::max(input_max_, r.in / weight(r.who));
    double batch = 0;
    for (const auto& [id, x] : running_) batch += (x.in + x.out) / weight(x.who);
    batch_max_ = std::max(batch_max_, batch);
    give(r.who, r.in);
  }
  void serve(double mu) {
    for (auto i = running_.begin(); i != running_.end();) {
      auto& [id, r] = *i;
      const double d = std::min(mu * r.speed, r.out - r.done);
      r.done += d;
      give(r.who, d);
      if (r.done < r.out) {
        ++i;
        continue;
      }
      gate_.ended(id, r.in + r.out, now_);
      i = running_.erase(i);
    }
  }
  void give(std::size_t t, double mu) {
    const double x = mu / weight(t);
    service_.at(t) += x;
    const double d = service_[0] - service_[1];
    if (waiting_[0] == 0 || waiting_[1] == 0) {
      both_waited_ = false;
      return;
    }
    if (!std::exchange(both_waited_, true)) least_ = most_ = d;
    both_.at(t) += x;
    least_ = std::min(least_, d);
    most_ = std::max(most_, d);
    gap_ = std::max(gap_, most_ - least_);
  }

  options options_;
  std::mt19937_64 draw_;
  gate gate_;
  time_point now_{};
  std::uint64_t last_id_ = 0, idle_places_ = 0;
  std::array<std::size_t, 2> waiting_{};
  std::map<std::uint64_t, request> asked_, running_;
  std::array<double, 2> service_{}, both_{};
  bool both_waited_ = false;
  double least_ = 0, most_ = 0, gap_ = 0, input_max_ = 0, batch_max_ = 0;
};

}  // namespace troupe::admission
