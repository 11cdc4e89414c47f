#include "tests/unit/actors/router/shard.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <numeric>
#include <random>
#include <set>

using namespace troupe;
using namespace troupe::router;
using namespace std::chrono_literals;
using test::shard;
using test::worker;

namespace {

const auto both = msg::Role::BOTH;
const auto prefill = msg::Role::PREFILL;
const auto decode = msg::Role::DECODE;

const time_point t0{1'000s};

/// Tokens per second of prefill where nothing was measured.
const double assumed = 1 / capacity::cost_model::assumed().in_seconds().alpha;

worker_report queued(double seconds) {
  worker_report r;
  r.queued_tokens = static_cast<std::uint64_t>(seconds * assumed);
  return r;
}

route_query at(time_point now, std::uint32_t prompt_bytes = 4'000) {
  auto q = shard::query(prompt_bytes);
  q.now = now;
  return q;
}

std::vector<std::uint64_t> chain_of(std::uint64_t first, std::size_t n) {
  std::vector<std::uint64_t> c(n);
  std::iota(c.begin(), c.end(), first);
  return c;
}

/// Until three minutes from `t0`, when its queue is as long as said, it works for such a share of
/// the time.
constexpr auto worked = 180s;
void works(shard& s, const std::string& name, double share, double queue = 0) {
  for (auto now = 0s; now <= worked; ++now) {
    auto r = queued(now == worked ? queue : 0);
    r.prefilled_tokens = static_cast<std::uint64_t>(share * assumed) *
                         static_cast<std::uint64_t>(now.count());
    s.policy.report(name, 7, r, t0 + now);
  }
}

}  // namespace

TEST_CASE("a worker that has not reported is unknown, not idle") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2"),
           worker("both/p/b1.0", both, "b1")}};
  s.policy.report("both/p/a2.0", 7, queued(0.7), t0);
  s.policy.report("both/p/b1.0", 7, queued(0.1), t0);
  CHECK(s.choose(at(t0)).decode.name == "both/p/b1.0");
  SECTION("and does not look better than all the others for being silent ever longer") {
    s.policy.report("both/p/a1.0", 7, queued(0), t0);
    CHECK(s.choose(at(t0)).decode.name == "both/p/a1.0");
    const auto later = t0 + report_stale_after + 1s;
    s.policy.report("both/p/a2.0", 7, queued(3), later);
    s.policy.report("both/p/b1.0", 7, queued(0.3), later);
    CHECK(s.choose(at(later)).decode.name == "both/p/b1.0");
  }
}

TEST_CASE("a report resets nothing that is live") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  s.policy.report("both/p/a1.0", 7, {}, t0);
  s.policy.report("both/p/a2.0", 7, {}, t0);
  REQUIRE(s.choose(at(t0)).decode.name == "both/p/a1.0");
  // Sent before the job had arrived.
  s.policy.report("both/p/a1.0", 7, {}, t0 + 1s);
  CHECK(s.choose(at(t0 + 1s)).decode.name == "both/p/a2.0");
}

TEST_CASE("what was granted and is then reported counts once, and what was computed no more") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  s.policy.report("both/p/a1.0", 7, {}, t0);
  auto queue = [&] { return s.view("both/p/a1.0").queue_seconds; };
  const auto first = s.choose(at(t0));  // 1,000 tokens: half a second
  CHECK(queue() == Approx(0.5).epsilon(0.01));
  s.policy.report("both/p/a1.0", 7, queued(0.5), t0 + 1s);
  CHECK(queue() == Approx(0.5).epsilon(0.01));
  const auto second = s.choose(at(t0 + 1s));
  CHECK(queue() == Approx(1).epsilon(0.01));
  s.policy.report("both/p/a1.0", 7, queued(2.5), t0 + 2s);  // another shard's, too
  CHECK(queue() == Approx(2.5).epsilon(0.01));
  s.policy.report("both/p/a1.0", 7, queued(0), t0 + 3s);
  CHECK(queue() == Approx(0).margin(0.01));
  // Long computed: their end changes nothing.
  s.policy.release(first.lease);
  s.policy.release(second.lease);
  CHECK(queue() == Approx(0).margin(0.01));
  CHECK(s.view("both/p/a1.0").leases == 0);
}

TEST_CASE("a lease that ends before the next report takes its work along") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  s.policy.report("both/p/a1.0", 7, {}, t0);
  const auto first = s.choose(at(t0));
  s.policy.release(first.lease);
  CHECK(s.view("both/p/a1.0").queue_seconds == 0);
  const auto second = s.choose(at(t0));
  s.policy.report("both/p/a1.0", 7, {}, t0 + 1s);
  CHECK(s.view("both/p/a1.0").queue_seconds > 0.4);
  s.policy.release(second.lease);
  CHECK(s.view("both/p/a1.0").queue_seconds == 0);
}

TEST_CASE("a prompt counts as ahead until it is computed, also at a worker that does both") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  s.policy.report("both/p/a1.0", 7, {}, t0);
  const auto lease = s.choose(at(t0)).lease;
  CHECK(s.view("both/p/a1.0").queue_seconds == Approx(0.5).epsilon(0.01));
  s.policy.release_prefill(lease);
  s.policy.release_prefill(lease);
  CHECK(s.view("both/p/a1.0").queue_seconds == 0);
  CHECK(s.view("both/p/a1.0").leases == 1);
  s.policy.report("both/p/a1.0", 7, {}, t0 + 1s);
  CHECK(s.view("both/p/a1.0").queue_seconds == 0);
  s.policy.release(lease);
  CHECK(s.view("both/p/a1.0").leased_tokens == 0);
}

TEST_CASE("what others have queued is worked off between reports, what was granted here is not") {
  const bool later = GENERATE(false, true);
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  s.policy.report("both/p/a1.0", 7, queued(2), t0);
  s.policy.report("both/p/a2.0", 7, {}, t0);
  CHECK(s.choose(at(t0)).decode.name == "both/p/a2.0");  // half a second from now on
  const auto next = s.choose(at(later ? t0 + 2500ms : t0));
  CHECK(next.decode.name == (later ? "both/p/a1.0" : "both/p/a2.0"));
}

TEST_CASE("streams that other shards have there count") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  worker_report r;
  r.running = 20;
  s.policy.report("both/p/a1.0", 7, r, t0);
  s.policy.report("both/p/a2.0", 7, {}, t0);
  for (int i = 0; i < 3; ++i) CHECK(s.choose(at(t0, 40)).decode.name == "both/p/a2.0");
}

TEST_CASE("slots and KV that lack are priced") {
  auto small = worker("decode/p/a1.0", decode, "a1");
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), small, worker("decode/p/a2.0", decode, "a2")}};
  SECTION("KV") {
    worker_report r;
    r.kv_total = 20'000;
    r.kv_used = 19'500;
    s.policy.report(small.name, 7, r, t0);
    r.kv_used = 10'000;
    s.policy.report("decode/p/a2.0", 7, r, t0);
    CHECK(s.choose(at(t0)).decode.name == "decode/p/a2.0");
    r.kv_used = 1'000;
    r.kv_cached = 19'000;  // free when needed
    s.policy.report(small.name, 7, r, t0);
    s.policy.report("decode/p/a2.0", 7, r, t0);
  }
  SECTION("slots") {
    small.slots = 2;
    s.policy.update({{small}, {}});
    worker_report r;
    r.running = 2;
    s.policy.report(small.name, 7, r, t0);
    s.policy.report("decode/p/a2.0", 7, r, t0);
    CHECK(s.choose(at(t0)).decode.name == "decode/p/a2.0");
  }
}

TEST_CASE("an engine's measured speed decides how much its queue weighs") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/b1.0", both, "b1")}};
  worker_report slow, fast;
  slow.queued_tokens = fast.queued_tokens = 1'000;
  slow.prefilled_tokens = fast.prefilled_tokens = 10'000;
  slow.busy_us = 100'000'000;
  fast.busy_us = 1'000'000;
  s.policy.report("both/p/a1.0", 7, slow, t0);
  s.policy.report("both/p/b1.0", 7, fast, t0);
  CHECK(s.choose(at(t0)).decode.name == "both/p/b1.0");
  CHECK(s.view("both/p/b1.0").queue_seconds == Approx(0.2).epsilon(0.01));
}

TEST_CASE("before any report an engine costs what it measured when it was loaded") {
  auto slow = worker("both/p/a1.0", both, "a1"), fast = worker("both/p/b1.0", both, "b1");
  slow.prefill_speed = 100;
  slow.decode_speed = 10;
  fast.prefill_speed = 10'000;
  fast.decode_speed = 100;
  shard s{{slow, fast}};
  CHECK(s.view(fast.name).costs == capacity::provenance::measured);
  CHECK(s.choose(at(t0)).decode.name == fast.name);
}

TEST_CASE("what an engine measures at the end of its loading counts, until its reports tell more") {
  auto slow = worker("both/p/a1.0", both, "a1"), fast = worker("both/p/b1.0", both, "b1");
  for (auto* w : {&slow, &fast}) w->state = msg::EntryState::LOADING;
  shard s{{slow, fast}};
  slow.prefill_speed = 100;
  slow.decode_speed = 10;
  fast.prefill_speed = 10'000;
  fast.decode_speed = 100;
  for (auto* w : {&slow, &fast}) w->state = msg::EntryState::READY;
  s.policy.update({{slow, fast}, {}});
  CHECK(s.view(fast.name).costs == capacity::provenance::measured);
  CHECK(s.choose(at(t0)).decode.name == fast.name);
  worker_report r;
  r.queued_tokens = 1'000;
  r.prefilled_tokens = 10'000;
  r.busy_us = 1'000'000;
  s.policy.report(fast.name, 7, r, t0);
  CHECK(s.view(fast.name).queue_seconds == Approx(0.1));
  // Its entry changes, also in what it says of speeds: reports know better.
  fast.prefill_speed = 1;
  s.policy.update({{fast}, {}});
  s.policy.report(fast.name, 7, r, t0);
  CHECK(s.view(fast.name).queue_seconds == Approx(0.1));
}

TEST_CASE("calibrated costs go before measured ones") {
  auto w = worker("both/p/a1.0", both, "a1");
  w.pool = "p";
  w.prefill_speed = w.decode_speed = 5;
  shard s{{w}};
  capacity::coefficients c;
  c.alpha = 0.01;
  c.beta = 0.1;
  s.policy.set_costs("p", capacity::cost_model::make(c, {}).value());
  worker_report r;
  r.queued_tokens = 100;
  r.prefilled_tokens = 10'000;
  r.busy_us = 1'000'000;
  s.policy.report(w.name, 7, r, t0);
  CHECK(s.view(w.name).queue_seconds == Approx(1));
  CHECK(s.view(w.name).costs == capacity::provenance::calibrated);
  // A later life has them, too.
  w.generation = 8;
  s.policy.update({{w}, {}});
  CHECK(s.view(w.name).costs == capacity::provenance::calibrated);
}

TEST_CASE("a prompt that was just routed is taken to be cached there soon, for a while") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/b1.0", both, "b1")}};
  auto q = at(t0);
  q.chain = chain_of(1, 7);
  const auto first = s.choose(q);
  REQUIRE(first.decode.name == "both/p/a1.0");
  s.policy.release(first.lease);
  q.host = "b1";  // all else equal it would be the nearer one
  SECTION("at once") {
    const auto again = s.choose(q);
    CHECK(again.decode.name == "both/p/a1.0");
    CHECK(s.view("both/p/a1.0").leased_tokens == 1'000 - 7 * 512 / 4 + 100);
  }
  SECTION("not another prompt") {
    q.chain = chain_of(100, 7);
    CHECK(s.choose(q).decode.name == "both/p/b1.0");
  }
  SECTION("not for ever") {
    q.now = t0 + guess_book::life + 1s;
    CHECK(s.choose(q).decode.name == "both/p/b1.0");
  }
  SECTION("not by the worker's next life") {
    s.policy.update({{worker("both/p/a1.0", both, "a1", 8)}, {}});
    CHECK(s.choose(q).decode.name == "both/p/b1.0");
  }
  SECTION("not when it would have to wait for longer than to compute it elsewhere") {
    s.policy.report("both/p/a1.0", 7, queued(5), t0);
    CHECK(s.choose(q).decode.name == "both/p/b1.0");
  }
}

TEST_CASE("what is found of promised prefixes corrects later promises, of that model") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  REQUIRE(s.knows("both/p/a1.0", chain_of(1, 7)));
  auto q = at(t0);
  q.chain = chain_of(1, 7);
  for (int i = 0; i < 100; ++i) {
    const auto c = s.choose(q);
    // A second word about the same lease is not heard.
    s.policy.learn(c.lease, {.prompt_tokens = 1'000, .cached_tokens = 448});
    s.policy.learn(c.lease, {.prompt_tokens = 1'000, .cached_tokens = 0});
    s.policy.release(c.lease);
    s.policy.learn(c.lease, {.prompt_tokens = 1'000, .cached_tokens = 0});
  }
  CHECK(s.policy.cached_share("m") == Approx(0.5).margin(0.01));
  CHECK(s.policy.cached_share("other") == 1);
  s.choose(q);
  CHECK(s.view("both/p/a1.0").leased_tokens == Approx(1'000 - 448 + 100).margin(5));
}

TEST_CASE("measured bandwidth moves pairs together or apart") {
  auto a = worker("decode/p/a2.0", decode, "a2"), b = worker("decode/p/b1.0", decode, "b1");
  a.kv_bytes_per_token = b.kv_bytes_per_token = 100'000;
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), a, b}};
  const auto first = s.choose(at(t0));
  REQUIRE(first.decode.name == a.name);  // the same rack
  s.policy.release(first.lease);
  for (int i = 0; i < 30; ++i) {
    const auto c = s.choose(at(t0));
    // 100 MB in ten seconds between these two.
    if (c.decode.name == a.name)
      s.policy.learn(c.lease, {.transfer_bytes = 100'000'000, .wire_us = 10'000'000});
    s.policy.release(c.lease);
  }
  CHECK(s.choose(at(t0)).decode.name == b.name);
}

TEST_CASE("a session stays as long as that costs less than the move") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  for (const auto* name : {"both/p/a1.0", "both/p/a2.0"}) s.policy.report(name, 7, {}, t0);
  auto q = at(t0, 400);
  q.session = "me";
  const auto first = s.choose(q);
  REQUIRE(first.decode.name == "both/p/a1.0");
  s.policy.release(first.lease);
  const double worth = session_bonus_tokens / assumed;
  s.policy.report("both/p/a1.0", 7, queued(worth * 0.8), t0);
  const auto stays = s.choose(q);
  CHECK(stays.decode.name == "both/p/a1.0");
  s.policy.release(stays.lease);
  s.policy.report("both/p/a1.0", 7, queued(worth * 1.2), t0);
  CHECK(s.choose(q).decode.name == "both/p/a2.0");
}

TEST_CASE("ties are drawn among, and only ties") {
  std::vector<directory::entry> all;
  for (int i = 0; i < 8; ++i) all.push_back(worker("both/p/a1." + std::to_string(i), both, "a1"));
  shard s{all};
  for (int i = 0; i < 8; ++i)
    s.policy.report(all[static_cast<std::size_t>(i)].name, 7, queued(i < 6 ? 0 : 1), t0);
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  std::map<std::string, int> chosen;
  for (int i = 0; i < 600; ++i) {
    auto q = at(t0);
    q.draw = random() | 1U;
    const auto c = s.choose(q);
    ++chosen[c.decode.name];
    s.policy.release(c.lease);
  }
  CHECK(chosen.size() == 6);
  for (const auto& [name, n] : chosen) CHECK(n > 40);
  CHECK(chosen.count("both/p/a1.7") == 0);
}

TEST_CASE("of all pairs the best is found, whatever is left out on the way", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const std::vector<std::string> hosts{"a1", "a2", "b1"};
  for (int round = 0; round < 60; ++round) {
    std::vector<directory::entry> prefills, decodes;
    std::map<std::string, worker_report> reports;
    std::map<std::string, std::size_t> known;
    const auto chain = chain_of(1, 30);
    auto make = [&](msg::Role role, const char* kind, std::vector<directory::entry>& to) {
      const auto n = 1 + below(6);
      for (unsigned i = 0; i < n; ++i) {
        const auto& host = hosts[below(3)];
        auto e = worker(kind + host + "." + std::to_string(i), role, host);
        e.kv_bytes_per_token = 200'000;
        if (below(10) == 0) e.slow = "slow";
        to.push_back(e);
        auto& r = reports[e.name];
        r.queued_tokens = below(4'000);
        r.running = below(10);
        r.kv_total = 30'000;
        r.kv_used = below(30'000);
        known[e.name] = below(3) == 0 ? below(30) : 0;
      }
    };
    make(prefill, "prefill/p/", prefills);
    make(decode, "decode/p/", decodes);
    auto q = at(t0, 30 * 512);
    q.chain = chain;
    if (below(3) == 0) q.exclude = {prefills[0].name};
    auto set_up = [&](std::vector<directory::entry> all) {
      // What is computed in vain depends on who else is there.
      router_limits limits;
      limits.others_weight = limits.crowded_weight = 0;
      shard s{all, limits};
      for (const auto& e : all) {
        s.policy.report(e.name, 7, reports[e.name], t0);
        (void)s.policy.prefixes(e.name, 7, 0, false,
                                {chain.begin(), chain.begin() + static_cast<long>(known[e.name])},
                                {});
      }
      return s.choose(q);
    };
    auto rank = [&](const route_choice& c) {
      int n = 0;
      for (const auto* list : {&prefills, &decodes})
        for (const auto& e : *list)
          if (e.name == c.prefill.name || e.name == c.decode.name)
            n += (e.slow.empty() ? 0 : 1) + (q.exclude == std::vector{e.name} ? 100 : 0);
      return n;
    };
    auto all = prefills;
    all.insert(all.end(), decodes.begin(), decodes.end());
    const auto best = set_up(all);
    std::pair least{std::numeric_limits<int>::max(), 0.0};
    for (const auto& p : prefills)
      for (const auto& d : decodes) {
        const auto c = set_up({p, d});
        least = std::min(least, {rank(c), c.score_seconds});
      }
    REQUIRE(rank(best) == least.first);
    REQUIRE(best.score_seconds == Approx(least.second).margin(1e-9));
  }
}

TEST_CASE("the busier the fleet, the longer a prompt waits for the worker that has it cached") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  const bool busy = GENERATE(false, true);
  CAPTURE(busy);
  works(s, "both/p/a1.0", busy ? 0.7 : 0.05);
  works(s, "both/p/a2.0", busy ? 0.7 : 0.05, 3);
  auto q = at(t0 + worked);
  q.chain = chain_of(1, 7);
  REQUIRE(s.knows("both/p/a2.0", q.chain));
  const auto c = s.choose(q);
  CHECK(c.decode.name == (busy ? "both/p/a2.0" : "both/p/a1.0"));
  s.policy.release(c.lease);
  SECTION("but not all wait for what many prompts begin with") {
    std::vector<std::string> chosen;
    for (int i = 0; i < 8; ++i) {
      const auto next = s.choose(q);
      chosen.push_back(next.decode.name);
      s.policy.release(next.lease);
    }
    CHECK(chosen.back() == "both/p/a1.0");
    // A minute later it is one conversation among others.
    q.now += 60s;
    for (const auto* name : {"both/p/a1.0", "both/p/a2.0"}) {
      auto r = queued(name == std::string{"both/p/a2.0"} ? 3 : 0);
      r.prefilled_tokens = static_cast<std::uint64_t>((busy ? 0.7 : 0.05) * assumed * 240);
      s.policy.report(name, 7, r, q.now);
    }
    CHECK(s.choose(q).decode.name == (busy ? "both/p/a2.0" : "both/p/a1.0"));
  }
}

TEST_CASE("in a busy fleet what is new goes where less was done lately") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/b1.0", both, "b1")}};
  works(s, "both/p/a1.0", 0.8);
  works(s, "both/p/b1.0", 0.5);
  CHECK(s.choose(at(t0 + worked)).decode.name == "both/p/b1.0");
}

TEST_CASE("a slow device is not waited for as if it could have had a prompt cached") {
  auto slow = worker("both/slow/a1.0", both, "a1"), fast = worker("both/fast/a2.0", both, "a2");
  slow.pool = "slow", fast.pool = "fast";
  shard s{{slow, fast}};
  const auto costs = [](double seconds) {
    return capacity::cost_model::make({.alpha = seconds, .alpha2 = 0, .beta = 1e-3},
                                      {.device_class = "d", .source = {}})
        .value();
  };
  s.policy.set_costs("slow", costs(2e-3));
  s.policy.set_costs("fast", costs(5e-4));
  // Both for seven tenths of the time.
  works(s, "both/slow/a1.0", 0.7 / (assumed * 2e-3));
  works(s, "both/fast/a2.0", 0.7 / (assumed * 5e-4));
  // A second and a half more to compute; the fast one's queue is longer than that.
  auto r = worker_report{};
  r.queued_tokens = 6'000;  // 3 s
  r.prefilled_tokens = static_cast<std::uint64_t>(0.7 / 5e-4) * worked.count();
  s.policy.report("both/fast/a2.0", 7, r, t0 + worked);
  CHECK(s.choose(at(t0 + worked)).decode.name == "both/slow/a1.0");
}

TEST_CASE("a worker that has just come is taken to have had as much to do as the others") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  works(s, "both/p/a1.0", 0.7);
  worker_report r;
  s.policy.report("both/p/a2.0", 7, r, t0 + worked - 1s);
  s.policy.report("both/p/a2.0", 7, queued(0.7), t0 + worked);
  // All else alike, but for a queue of less than what a prompt takes.
  CHECK(s.choose(at(t0 + worked)).decode.name == "both/p/a1.0");
}

TEST_CASE("one stream does not make an engine busy whose costs are only measured") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  for (auto now = 0s; now <= worked; ++now)
    for (const auto* name : {"both/p/a1.0", "both/p/a2.0"}) {
      auto r = queued(name == std::string{"both/p/a2.0"} && now == worked ? 3 : 0);
      r.sampled_tokens = 20 * static_cast<std::uint64_t>(now.count());
      r.busy_us = 1'000'000 * static_cast<std::uint64_t>(now.count());
      s.policy.report(name, 7, r, t0 + now);
    }
  auto q = at(t0 + worked);
  q.chain = chain_of(1, 7);
  REQUIRE(s.knows("both/p/a2.0", q.chain));
  CHECK(s.choose(q).decode.name == "both/p/a1.0");
}

TEST_CASE("in an idle fleet a conversation goes on where it is, whatever that worker did lately") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/b1.0", both, "b1")}};
  works(s, "both/p/a1.0", 0);
  works(s, "both/p/b1.0", 0.1);
  auto q = at(t0 + worked);
  q.chain = chain_of(1, 2);  // a sixteenth of a second
  REQUIRE(s.knows("both/p/b1.0", q.chain));
  CHECK(s.choose(q).decode.name == "both/p/b1.0");
}

TEST_CASE("of a large pool a workload uses few, others use others, and a busy one gets more") {
  std::vector<directory::entry> all;
  for (int i = 0; i < 500; ++i) all.push_back(worker("both/p/a1." + std::to_string(i), both, "a1"));
  shard s{all};
  std::map<std::string, std::set<std::string>> used;
  for (const auto* workload : {"one", "two"})
    for (int i = 0; i < 300; ++i) {
      auto q = at(t0);
      q.workload = workload;
      const auto c = s.choose(q);
      used[workload].insert(c.decode.name);
      s.policy.release(c.lease);
      if (i % 6 == 0) s.choose(q);
    }
  CHECK(used["one"].size() > 32);
  CHECK(used["one"].size() <= 64);
  std::size_t common = 0;
  for (const auto& name : used["one"]) common += used["two"].count(name);
  CHECK(common < 32);
  // Leases pile up: waiting at its best worker, it grows.
  for (int i = 0; i < 2'000; ++i) {
    auto q = at(t0 + std::chrono::milliseconds{10 * i}, 8'000);
    q.workload = "one";
    q.session = std::to_string(i);
    used["one"].insert(s.choose(q).decode.name);
  }
  CHECK(used["one"].size() > 128);
}

TEST_CASE("the reason tells what the score is made of, and who would have been next") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("decode/p/a1.0", decode, "a1"),
           worker("decode/p/b1.0", decode, "b1")}};
  const auto reason = s.choose(at(t0)).reason;
  CHECK_THAT(reason, Catch::Contains("score 508 ms (same_host)") &&
                         Catch::Contains("prefill 500 with 0 cached, others 0, lately 0") &&
                         Catch::Contains("transfer") &&
                         Catch::Contains("; next prefill/p/a1.0 and decode/p/b1.0 "));
}
