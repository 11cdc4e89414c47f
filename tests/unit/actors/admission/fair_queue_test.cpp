#include "actors/admission/fair_queue.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

using namespace troupe::admission;

namespace {

// How it can fail: a tenant with large requests gets more than one with small ones; one that was
// idle comes back with credit and starves the others; capacity is idle while somebody waits; a
// guaranteed request waits behind best-effort ones.

constexpr auto anyone = [](const queued_request&) { return true; };

queued_request of(std::uint64_t id, std::string tenant, double mu,
                  service_class how = service_class::best_effort, std::uint8_t priority = 0,
                  double weight = 1) {
  return {id, std::move(tenant), how, priority, weight, mu, time_point{std::chrono::hours{1}}};
}

/// A server that runs `places` requests at a time: a request's input counts when it begins, its
/// output bit by bit, as in the paper.
struct server {
  struct running {
    std::string tenant;
    double weight, in, out, done, reserved, speed;
  };
  fair_queue queue;
  std::vector<running> now;
  std::map<std::string, double> service;  ///< that was really given, by weight
  std::size_t places = 4;

  void step(double mu) {
    for (auto& r : now) {
      const auto d = std::min(mu * r.speed, r.out - r.done);
      r.done += d;
      service[r.tenant] += d / r.weight;
    }
    for (std::size_t i = 0; i < now.size();)
      if (now[i].done >= now[i].out) {
        queue.charge(now[i].tenant, service_class::best_effort, 0, now[i].weight,
                     now[i].in + now[i].out - now[i].reserved);
        now.erase(now.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
  }
};

}  // namespace

TEST_CASE("two backlogged tenants: the gap in service stays within VTC's bound", "[admission]") {
  double worst_share = 0, worst_gap = 0, worst_bound = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 draw{seed};
    auto real = [&](double a, double b) { return std::uniform_real_distribution<>{a, b}(draw); };
    server s;
    s.places = 1 + draw() % 8;
    const double weights[] = {1, seed % 3 == 0 ? 2.5 : 1};
    const double sizes[] = {10, 1};  // 10 : 1
    std::uint64_t id = 0;
    double max_in = 0, max_out = 0;
    std::map<std::uint64_t, std::pair<double, double>> parts;
    bool idle_a = false;
    double base_a = 0, base_b = 0;  // services since both are backlogged
    for (int step = 0; step < 4'000; ++step) {
      // One pauses, and comes back.
      if (step == 1'500) idle_a = true;
      if (step == 2'000) idle_a = false;
      for (int t = 0; t < 2; ++t) {
        const std::string name = t == 0 ? "a" : "b";
        if (t == 0 && idle_a) continue;
        while (s.queue.size_of(name) < 3) {
          const double in = sizes[t] * real(0.2, 1), out = sizes[t] * real(0.2, 1);
          parts[++id] = {in, out};
          max_in = std::max(max_in, in / weights[t]);
          max_out = std::max(max_out, out / weights[t]);
          // What is reserved is a guess.
          s.queue.push(
              of(id, name, in + out * real(0.7, 1.3), service_class::best_effort, 0, weights[t]));
        }
      }
      while (s.now.size() < s.places) {
        auto r = s.queue.next(anyone);
        if (!r) break;
        const auto [in, out] = parts.at(r->id);
        s.service[r->tenant] += in / r->weight;
        s.now.push_back({r->tenant, r->weight, in, out, 0, r->mu, real(0.5, 2)});
      }
      REQUIRE((s.now.size() == s.places || s.queue.empty()));  // work-conserving
      s.step(0.05);
      const bool both = s.queue.size_of("a") > 0 && s.queue.size_of("b") > 0;
      if (!both || step == 0) {
        base_a = s.service["a"];
        base_b = s.service["b"];
        continue;
      }
      // L_in by weight, and M: all output that a batch can hold.
      const double bound = 2 * std::max(max_in, max_out * static_cast<double>(s.places));
      const double gap = std::abs((s.service["a"] - base_a) - (s.service["b"] - base_b));
      REQUIRE(gap <= bound);
      if (gap / bound > worst_share) {
        worst_share = gap / bound;
        worst_gap = gap;
        worst_bound = bound;
      }
    }
  }
  std::printf("VTC, 10:1 sizes, 30 seeds: largest gap %.1f MU of a bound of %.1f\n", worst_gap,
              worst_bound);
}

TEST_CASE("idleness earns nothing", "[admission]") {
  fair_queue q;
  std::uint64_t id = 0;
  for (int i = 0; i < 50; ++i) {
    q.push(of(++id, "busy", 1));
    q.next(anyone);
  }
  for (int i = 0; i < 10; ++i) q.push(of(++id, "busy", 1));
  for (int i = 0; i < 10; ++i) q.push(of(++id, "new", 1));
  int busy = 0;
  for (int i = 0; i < 10; ++i) busy += q.next(anyone)->tenant == "busy" ? 1 : 0;
  CHECK(busy == 5);
  // Nor when nobody else waits at that moment.
  fair_queue p;
  for (int i = 0; i < 50; ++i) {
    p.push(of(++id, "busy", 1));
    p.next(anyone);
  }
  p.push(of(++id, "new", 1));
  CHECK(p.counter("new", service_class::best_effort, 0) == Approx(50));
}

TEST_CASE("guaranteed work goes first, then priorities, then shares", "[admission]") {
  fair_queue q;
  q.push(of(1, "x", 1));
  q.push(of(2, "y", 1, service_class::best_effort, 5));
  q.push(of(3, "z", 1, service_class::guaranteed));
  q.push(of(4, "z", 1, service_class::guaranteed, 3));
  std::vector<std::uint64_t> order;
  while (auto r = q.next(anyone)) order.push_back(r->id);
  CHECK(order == std::vector<std::uint64_t>{4, 3, 2, 1});
  CHECK(q.empty());
  CHECK(q.mu() == 0);
}

TEST_CASE("who may not begin keeps nobody else waiting", "[admission]") {
  fair_queue q;
  q.push(of(1, "full", 1));
  q.push(of(2, "other", 5));
  auto r = q.next([](const queued_request& x) { return x.tenant != "full"; });
  REQUIRE(r);
  CHECK(r->id == 2);
  CHECK_FALSE(q.next([](const queued_request& x) { return x.tenant != "full"; }));
  CHECK(q.size() == 1);
}

TEST_CASE("what is taken out of the middle leaves no trace", "[admission]") {
  fair_queue q;
  for (std::uint64_t i = 1; i <= 5; ++i) q.push(of(i, "t", 1));
  REQUIRE(q.remove(3));
  CHECK_FALSE(q.remove(3));
  CHECK(q.mu_of("t") == Approx(4));
  CHECK(q.take_late(time_point{std::chrono::hours{1}} - milliseconds{1}).empty());
  CHECK(q.take_late(time_point{std::chrono::hours{1}}).size() == 4);
  CHECK(q.empty());
  CHECK(q.mu() == 0);
}

TEST_CASE("a best-effort request moves up when its tenant's budget has room", "[admission]") {
  fair_queue q;
  q.push(of(1, "a", 1));
  q.push(of(2, "b", 1));
  CHECK(q.first_of("b", service_class::best_effort)->id == 2);
  q.promote("b", 0, 1);
  CHECK(q.first_of("b", service_class::best_effort) == nullptr);
  CHECK(q.next(anyone)->id == 2);
  CHECK(q.size() == 1);
}

TEST_CASE("what is ahead of a request is what begins before it", "[admission]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 draw{seed};
    fair_queue q;
    double most = 0;
    for (std::uint64_t i = 1; i <= 40; ++i) {
      const double mu = 0.1 + static_cast<double>(draw() % 30) / 10;
      most = std::max(most, mu);
      q.push(of(i, "t" + std::to_string(draw() % 3), mu,
                draw() % 4 == 0 ? service_class::guaranteed : service_class::best_effort));
    }
    const auto r = of(99, "t1", 1);
    const double told = q.mu_ahead(r);
    q.push(r);
    double before = 0;
    for (auto x = q.next(anyone); x && x->id != 99; x = q.next(anyone)) before += x->mu;
    CHECK(std::abs(told - before) <= 2 * most);
  }
}
