#include "actors/control/assigner.hpp"
#include "actors/control/placement.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace troupe::control;

TEST_CASE("what is held stays as it was, cuts and all, and the rest is the next one's") {
  const auto now = assignment::make({1, 1}, {"a", "b", "c", "d"},
                                    {{0, {0}}, {100, {1}}, {200, {1, 2}}, {300, {3}}, {400, {2}}})
                       .value();
  // Another order, and `d` is no more.
  const auto next = assignment::make({1, 2}, {"c", "b", "a"},
                                     {{0, {0}}, {50, {2}}, {150, {0}}, {450, {2}}})
                        .value();
  const auto held = hold(now, next, {"b", "d"});
  CHECK(held.number() == next.number());
  CHECK(held.shards() == next.shards());
  const std::vector<slice> expected{{0, {0}},   {50, {2}},  {100, {1}}, {200, {0, 1}},
                                    {300, {0}}, {400, {0}}, {450, {2}}};
  CHECK(held.slices() == expected);
  CHECK(hold(now, next, {}).slices() == next.slices());
}

namespace {

constexpr key64 last_key = ~key64{0};

std::vector<shard_state> healthy(std::size_t n) {
  std::vector<shard_state> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back({"router/" + std::to_string(i), true});
  return out;
}
std::vector<std::string> names(const std::vector<shard_state>& shards) {
  std::vector<std::string> out;
  for (const auto& s : shards) out.push_back(s.name);
  return out;
}

/// Zipf over `keys` keys at random places; those with more than 1 % stand out.
load_map zipf(std::mt19937_64& random, std::size_t keys, double s, double total = 1'000) {
  std::vector<key_load> all;
  double sum = 0;
  for (std::size_t i = 0; i < keys; ++i) {
    all.push_back({random(), std::pow(static_cast<double>(i + 1), -s)});
    sum += all.back().load;
  }
  std::vector<range_load> ranges;
  std::vector<key_load> hot;
  for (auto& k : all) {
    k.load *= total / sum;
    ranges.push_back({k.key, k.key, k.load});
    if (k.load > total / 100) hot.push_back(k);
  }
  return load_map{ranges, hot};
}

struct counts {
  std::map<std::string, std::size_t> slices;
  std::size_t slots = 0;
  std::size_t most_replicas = 0;
};
counts count(const assignment& a) {
  counts c;
  for (const auto& name : a.shards()) c.slices[name] = 0;
  for (const auto& s : a.slices()) {
    c.slots += s.replicas.size();
    c.most_replicas = std::max(c.most_replicas, s.replicas.size());
    for (auto r : s.replicas) ++c.slices[a.shards()[r]];
  }
  return c;
}

}  // namespace

TEST_CASE("the price of a load is as Dicer's") {
  CHECK(load_price(10, 9, 11) == 0);
  CHECK(load_price(8, 9, 11) == Approx(4 * std::pow(1 + 1.0 / 9, 2) * 1));
  CHECK(load_price(13, 9, 11) == Approx(16 * std::pow(13.0 / 11, 2) * 2));
}

TEST_CASE("without load the key space is shared out, and nothing moves") {
  const auto shards = healthy(4);
  const auto now = assignment::uniform(names(shards));
  const auto r = assign(now, shards, {}, {}, {1, 1});
  CHECK(r.churn == 0);
  CHECK(churn_between(now, r.next) == 0);
  CHECK(r.next.number() == assignment_number{1, 1});
}

TEST_CASE("a shard that is lost has nothing any more, and its keys go to all others") {
  auto shards = healthy(4);
  const auto now = assignment::uniform(names(shards));
  shards[2].healthy = false;
  const auto r = assign(now, shards, {}, {}, {1, 1});
  const auto c = count(r.next);
  CHECK(c.slices.at("router/2") == 0);
  CHECK(r.forced == Approx(0.25));
  for (const auto* name : {"router/0", "router/1", "router/3"}) CHECK(c.slices.at(name) >= 32);
  // Nothing but the lost one's keys has moved by more than the cap.
  CHECK(churn_between(now, r.next) <= 0.25 + 0.09 + 1e-9);
}

TEST_CASE("a new shard gets its share, round by round within the cap") {
  const auto shards = healthy(4);
  auto now = assignment::uniform({"router/0", "router/1", "router/2"});
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const auto r = assign(now, shards, {}, {}, {1, round});
    CHECK(churn_between(now, r.next) <= 0.09 + 1e-9);
    now = r.next;
  }
  double part = 0;
  for (std::size_t i = 0; i < now.slices().size(); ++i)
    if (now.has("router/3", now.slices()[i].first))
      part += width(now.slices()[i].first, now.last_of(i));
  CHECK(part >= 0.22);  // of a fair 0.25, with a tolerance of a tenth
  CHECK(part <= 0.28);
}

TEST_CASE("a key that is hotter than a shard is cut out and replicated, alone") {
  const auto shards = healthy(4);
  const auto now = assignment::uniform(names(shards));
  const key64 hot = 0x123456789abcdef0U;
  const std::vector<range_load> ranges{{0, last_key, 100}, {hot, hot, 300}};
  const std::vector<key_load> keys{{hot, 300}};
  const load_map load{ranges, keys};
  const auto r = assign(now, shards, load, {}, {1, 1});
  CHECK(r.next.replicas_of(hot).size() >= 3);
  const auto i = r.next.slice_of(hot);
  CHECK(r.next.slices()[i].first == hot);
  CHECK(r.next.last_of(i) == hot);
  CHECK(r.next.replicas_of(hot + 1).size() == 1);
  CHECK(r.imbalance < r.imbalance_before);
  CHECK(r.imbalance <= 1.25);
  // It cools down: one is enough again.
  const std::vector<range_load> flat{{0, last_key, 400}};
  auto next = r.next;
  for (std::uint64_t round = 2; round < 8; ++round)
    next = assign(next, shards, load_map{flat, {}}, {}, {1, round}).next;
  CHECK(count(next).slots <= 64 * 4);
}

TEST_CASE("without a healthy shard everything stays as it is, under the new number") {
  auto shards = healthy(2);
  const auto now = assignment::uniform(names(shards));
  for (auto& s : shards) s.healthy = false;
  const auto r = assign(now, shards, {}, {}, {2, 9});
  CHECK(r.next.slices() == now.slices());
  CHECK(r.next.number() == assignment_number{2, 9});
}

TEST_CASE("the minimum of replicas is kept, as far as there are shards") {
  const auto shards = healthy(3);
  assigner_limits limits;
  limits.replicas_min = 2;
  const auto r = assign(assignment::uniform(names(shards)), shards, {}, limits, {1, 1});
  for (const auto& s : r.next.slices()) CHECK(s.replicas.size() >= 2);
  const auto one = healthy(1);
  const auto alone = assign(assignment::uniform(names(one)), one, {}, limits, {1, 1});
  for (const auto& s : alone.next.slices()) CHECK(s.replicas.size() == 1);
}

TEST_CASE("whatever the load: caps, bounds and balance", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  int balanced = 0;
  for (int run = 0; run < 12; ++run) {
    const auto n = 2 + random() % 9;
    auto shards = healthy(n);
    auto now = assignment::uniform(names(shards));
    const auto exponent = 0.5 + static_cast<double>(random() % 100) / 100;
    const auto load = zipf(random, 200 + random() % 3'000, exponent);
    INFO("run " << run << ": " << n << " shards, exponent " << exponent);
    assigner_round r{now};
    for (std::uint64_t round = 1; round <= 12; ++round) {
      // Now and then a shard is lost or comes back; in the last rounds all is quiet.
      if (round < 5 && random() % 3 == 0) {
        auto& s = shards[random() % n];
        s.healthy = !s.healthy;
        if (std::none_of(shards.begin(), shards.end(), [](const auto& x) { return x.healthy; }))
          s.healthy = true;
      }
      r = assign(now, shards, load, {}, {1, round});
      // `make` has checked that each key has an owner. No unhealthy one is among them.
      const auto c = count(r.next);
      std::size_t alive = 0;
      for (const auto& s : shards) {
        if (s.healthy) ++alive;
        if (!s.healthy) CHECK(c.slices.at(s.name) == 0);
      }
      CHECK(r.churn <= 0.09 + 1e-9);
      CHECK(churn_between(now, r.next) <= r.churn + r.forced + 1e-9);
      CHECK(c.slots >= 32 * alive);
      CHECK(c.most_replicas <= std::min<std::size_t>(8, alive));
      // The search repeats itself.
      if (round == 1)
        CHECK(assign(now, shards, load, {}, {1, round}).next.slices() == r.next.slices());
      now = r.next;
    }
    // Within the tolerance, and what eight replicas leave of the hottest key. Of 700 loads the
    // search, which looks at one move at a time, stops short of that with three or four.
    if (r.imbalance <= 1.2) ++balanced;
    CHECK(r.imbalance <= 1.6);
    CHECK(count(now).slots <= 64 * n);
  }
  CHECK(balanced >= 10);  // of 12
}
