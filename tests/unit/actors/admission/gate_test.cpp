#include "actors/admission/budget_owner.hpp"
#include "actors/admission/gate.hpp"
#include "actors/admission/retry_after.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

using namespace troupe::admission;

namespace {

// How it can fail: a counter that leaks when a request is cancelled in the queue or while it runs;
// a refusal without a time, or with one at which the client is refused again; a best-effort request
// before a guaranteed one; requests that are let in and then wait at a worker.

const time_point t0{std::chrono::hours{1}};
time_point at(double s) {
  return t0 + std::chrono::duration_cast<time_point::duration>(seconds{s});
}

tenant_limits limits(std::string name, double guaranteed, double weight = 0) {
  tenant_limits l;
  l.tenant = std::move(name);
  l.model.assign(1, 'm');  // GCC 12 sees an endless copy in an assignment here
  l.guaranteed_per_minute = guaranteed;
  l.burst = guaranteed / 10;
  l.floor_per_minute = guaranteed / 20;
  l.best_effort_weight = weight;
  l.wait_max = milliseconds{2'000};
  return l;
}

/// One gateway, which owns its tenants' budgets.
struct desk {
  gate g;
  std::map<std::string, budget_owner> owners;
  std::vector<tenant_limits> all;
  std::uint64_t next = 1;

  explicit desk(std::vector<tenant_limits> l, std::uint32_t slots = 4)
      : g(l, "g0", {"g0"}, 1, t0), all(l) {
    g.supply("m", {slots, 0, 1'000'000, 1}, 1);
    for (const auto& x : l)
      owners.emplace(
          budget_name(x.tenant, x.model),
          budget_owner{{x.guaranteed_per_minute, x.burst, x.floor_per_minute, x.open_max, 1},
                       {"g0"},
                       1,
                       t0});
  }
  void talk(double s) {
    for (int round = 0; round < 4; ++round) {
      const auto words = g.words(at(s));
      if (words.empty()) return;
      for (const auto& w : words)
        g.answered(w.budget, "g0", owners.at(w.budget).answer("g0", w.word, at(s)), at(s));
    }
  }
  std::vector<verdict> pump(double s) {
    talk(s);
    auto out = g.pump(at(s));
    talk(s);
    for (auto& v : g.pump(at(s))) out.push_back(std::move(v));
    return out;
  }
  std::optional<refusal> arrive(const std::string& who, double mu, double s,
                                std::uint64_t* id = nullptr, double patience = 60) {
    refusal why;
    if (id) *id = next;
    const bool in = g.arrive({next++, who, "m", mu, 100, at(s + patience)}, at(s), why);
    return in ? std::nullopt : std::optional{why};
  }
};

}  // namespace

TEST_CASE("Retry-After is exact in ms, rounded up in seconds, late by at most 20 %",
          "[admission]") {
  CHECK(retry_after(seconds{1.5}, 0) == milliseconds{1'500});
  CHECK(retry_after(seconds{1.5}, 1) <= milliseconds{1'800});
  CHECK(retry_after(seconds{0}, 0) == milliseconds{1});
  CHECK(retry_after(seconds{1e9}, 0) == milliseconds{3'600'000});
  CHECK(whole_seconds(milliseconds{1'001}) == 2);
  CHECK(whole_seconds(milliseconds{1'000}) == 1);
  CHECK(whole_seconds(milliseconds{1}) == 1);
}

TEST_CASE("reserve, settle, refund: a cancelled request costs nothing", "[admission]") {
  desk d{{limits("a", 60)}};  // 1 MU/s, burst 6
  d.pump(0);
  std::uint64_t id = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 1, &id));
  const auto begun = d.pump(1);
  REQUIRE(begun.size() == 1);
  CHECK_FALSE(begun[0].why);
  CHECK(d.g.reserved_mu() == Approx(1));
  CHECK(d.g.where("a", "m", at(1)).remaining == Approx(5).margin(0.01));
  CHECK(d.g.ended(id, 0, at(1)));
  CHECK_FALSE(d.g.ended(id, 0, at(1)));  // once
  CHECK(d.g.reserved_mu() == 0);
  d.pump(1);
  CHECK(d.g.where("a", "m", at(1)).remaining == Approx(6).margin(0.01));
  // More than was reserved is paid, too.
  REQUIRE_FALSE(d.arrive("a", 1, 2, &id));
  d.pump(2);
  d.g.ended(id, 9, at(2));
  d.pump(2);
  CHECK(d.g.where("a", "m", at(2)).remaining == 0);
  const auto why = d.arrive("a", 1, 2);
  REQUIRE(why);
  CHECK(std::string{why->reason} == "tenant_limit");
  CHECK(why->http_status == 429);
  CHECK(why->retry_after.count() == Approx(2).margin(0.1));  // 4 MU, less 2 s that it may wait
}

TEST_CASE("what waits is taken out without a trace", "[admission]") {
  desk d{{limits("a", 0, 1)}, 1};
  d.pump(0);
  std::uint64_t first = 0, second = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 0, &first));
  REQUIRE_FALSE(d.arrive("a", 1, 0, &second));
  CHECK(d.pump(0).size() == 1);
  CHECK(d.g.waiting() == 1);
  CHECK_FALSE(d.g.ended(second, 0, at(0.1)));
  CHECK(d.g.waiting() == 0);
  CHECK(d.g.ended(first, 1, at(0.2)));
  CHECK(d.g.open() == 0);
  CHECK(d.g.accounts(at(1))[0].waiting_mu == 0);
}

TEST_CASE("guaranteed work goes before best-effort work that waits", "[admission]") {
  desk d{{limits("bulk", 0, 1), limits("paid", 600)}, 1};
  d.pump(0);
  std::uint64_t running = 0, paid = 0;
  REQUIRE_FALSE(d.arrive("bulk", 1, 0, &running));
  CHECK(d.pump(0).size() == 1);
  REQUIRE_FALSE(d.arrive("bulk", 0.5, 0));
  REQUIRE_FALSE(d.arrive("paid", 1, 0, &paid));
  CHECK(d.pump(0.1).empty());  // never what runs
  d.g.ended(running, 1, at(0.2));
  const auto next = d.pump(0.2);
  REQUIRE(next.size() == 1);
  CHECK(next[0].id == paid);
}

TEST_CASE("a wait that is too long is refused at once, and one that became so when it is over",
          "[admission]") {
  auto l = limits("a", 0, 1);
  l.wait_max = milliseconds{500};
  desk d{{l}, 1};
  d.g.supply("m", {1, 0, 1'000, 1}, 1);  // 1 MU/s
  d.pump(0);
  REQUIRE_FALSE(d.arrive("a", 1, 0));
  d.pump(0);
  REQUIRE_FALSE(d.arrive("a", 1, 0.0));
  const auto why = d.arrive("a", 1, 0.0);
  REQUIRE(why);
  CHECK(std::string{why->reason} == "capacity");
  CHECK(why->retry_after.count() == Approx(0.5));
  const auto late = d.pump(0.7);
  REQUIRE(late.size() == 1);
  REQUIRE(late[0].why);
  CHECK(late[0].why->http_status == 429);
  // Nor is a deadline that cannot be met waited for.
  REQUIRE_FALSE(d.arrive("a", 1, 0.7));
  CHECK(d.arrive("a", 1, 0.7, nullptr, 0.1));
}

TEST_CASE("nobody can serve: 503", "[admission]") {
  desk d{{limits("a", 600)}, 0};
  d.pump(0);
  const auto why = d.arrive("a", 1, 0);
  REQUIRE(why);
  CHECK(why->http_status == 503);
  CHECK(std::string{why->reason} == "model_not_ready");
}

TEST_CASE("a cap of requests at a time", "[admission]") {
  auto l = limits("a", 0, 1);
  l.open_max = 2;
  desk d{{l}, 8};
  d.pump(0);
  std::uint64_t id = 0;
  for (int i = 0; i < 5; ++i) REQUIRE_FALSE(d.arrive("a", 0.1, 0, &id));
  CHECK(d.pump(0.01).size() == 2);
  CHECK(d.g.waiting() == 3);
  CHECK(d.g.ended(1, 0.1, at(0.1)));
  CHECK(d.pump(0.1).size() == 1);
}

TEST_CASE("prompts wait here, not at a worker", "[admission]") {
  capacity_window w;
  w.update({8, 0, 512, 1});
  REQUIRE(w.has_room());
  w.began(4'000);  // one always fits
  CHECK_FALSE(w.has_room());
  w.prefilled(4'000);
  w.began(100);
  CHECK(w.has_room());
  w.prefilled(100);
  w.ended();
  w.ended();
  // Of what is free each gateway takes its share.
  w.update({8, 4, 512, 4});
  CHECK(w.limit() == 1);
  w.update({8, 16, 512, 4});
  CHECK(w.limit() == 1);
}

TEST_CASE("each worker that prefills has a prompt, whatever its length", "[admission]") {
  // How it can fail: long prompts one at a time for a whole pool; a window that filled once, and
  // shuts for good.
  capacity_window w;
  w.update({64, 0, 4 * 1'024, 1, 4});
  for (int i = 0; i < 4; ++i) {
    REQUIRE(w.has_room());
    w.began(50'000);
  }
  CHECK_FALSE(w.has_room());
  w.prefilled(50'000);
  CHECK(w.has_room());
  for (int i = 0; i < 3; ++i) w.prefilled(50'000);
  for (int i = 0; i < 4; ++i) w.ended();
  CHECK(w.open() == 0);
  for (int i = 0; i < 40; ++i) {  // short ones, as many as are taken up at once
    REQUIRE(w.has_room());
    w.began(100);
  }
  w.began(100);
  CHECK_FALSE(w.has_room());
}

TEST_CASE("a gateway has the part of capacity that it uses", "[admission]") {
  capacity_window w;
  w.update({40, 0, 1'000, 4, 4});
  CHECK(w.limit() == 10);  // nobody knows anything yet
  for (int i = 0; i < 10; ++i) {
    w.began(1);
    w.prefilled(1);
  }
  CHECK_FALSE(w.has_room());
  w.update({40, 10, 1'000, 4, 4});  // nobody else is there
  CHECK(w.limit() == 40);
  w.update({40, 20, 1'000, 4, 4});  // half of it is others'
  CHECK(w.limit() == 20);
}

TEST_CASE("a gateway that others have left nothing gets its part of guaranteed work's places",
          "[admission]") {
  // How it can fail: a flood at one gateway shuts another's tenants out for as long as it lasts;
  // one that has too much never gives it up.
  capacity_window a, b;
  b.update({8, 0, 1'000'000, 2, 8});
  for (int i = 0; i < 8; ++i) b.began(1);
  a.update({8, 8, 1'000'000, 2, 8});
  CHECK(a.has_room());  // one place for whatever work
  int began = 0;
  for (; a.has_room(true); ++began) a.began(1);
  CHECK(began == 4);
  CHECK_FALSE(a.has_room());
  // Best effort at the other gateway makes room as its requests end.
  while (b.open() + a.open() > 8) {
    b.update({8, a.open() + b.open(), 1'000'000, 2, 8});
    REQUIRE_FALSE(b.has_room());
    REQUIRE(b.limit() < b.open());
    while (b.open() > b.limit()) b.ended();
  }
  CHECK(b.open() == 4);
  a.update({8, 8, 1'000'000, 2, 8});
  CHECK(a.limit() == 4);
  a.update({0, 0, 0, 2, 0});
  CHECK_FALSE(a.has_room(true));
}

TEST_CASE("guaranteed work begins beside another gateway's flood, best effort waits for its turn",
          "[admission]") {
  desk d{{limits("bulk", 0, 1), limits("paid", 6'000)}, 8};
  d.pump(0);
  d.g.supply("m", {8, 8, 1'000'000, 2, 8}, 1);
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(d.arrive("bulk", 0.1, 0));
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(d.arrive("paid", 0.1, 0));
  for (int i = 0; i < 3; ++i)
    for (const auto& v : d.pump(0)) CHECK(v.id > 3);
  CHECK(d.g.open() == 3);
  CHECK(d.g.waiting() == 3);
}

TEST_CASE("a wide request takes its places, and does not wait for ever behind narrow ones",
          "[admission]") {
  desk d{{limits("a", 0, 1)}, 4};
  d.pump(0);
  std::uint64_t narrow = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 0, &narrow));
  CHECK(d.pump(0).size() == 1);
  refusal why;
  REQUIRE(d.g.arrive({100, "a", "m", 1, 100, at(60), 8}, at(0), why));
  REQUIRE_FALSE(d.arrive("a", 1, 0));
  REQUIRE(d.pump(0).size() == 1);  // the wide one; it fills all
  CHECK(d.g.ended(100, 1, at(1)));
  CHECK(d.pump(1).size() == 1);
}

TEST_CASE("a tenant that its own limits hold up takes nobody's capacity", "[admission]") {
  // How it can fail: what waits for a tenant's budget counts as work ahead, and others are refused
  // while engines are idle.
  auto blocked = limits("blocked", 60);
  blocked.wait_max = milliseconds{60'000};
  auto other = limits("other", 0, 1);
  other.wait_max = milliseconds{0};
  desk d{{blocked, other}, 8};
  d.pump(0);
  for (int i = 0; i < 20; ++i) REQUIRE_FALSE(d.arrive("blocked", 1, 0));
  d.pump(0);
  CHECK(d.g.waiting() > 10);
  std::uint64_t id = 0;
  CHECK_FALSE(d.arrive("other", 1, 0.1, &id));
  const auto begun = d.pump(0.1);
  CHECK(
      std::any_of(begun.begin(), begun.end(), [&](const auto& v) { return v.id == id && !v.why; }));
}

TEST_CASE("too many of a tenant's own requests read as that", "[admission]") {
  auto l = limits("a", 0, 1);
  l.open_max = 2;
  l.wait_max = milliseconds{1'000};
  desk d{{l}, 8};
  d.pump(0);
  for (int i = 0; i < 2; ++i) REQUIRE_FALSE(d.arrive("a", 1, 0));
  CHECK(d.pump(0.01).size() == 2);
  REQUIRE_FALSE(d.arrive("a", 1, 0.01));  // nobody knows yet how long they run
  const auto late = d.pump(2);
  REQUIRE(late.size() == 1);
  REQUIRE(late[0].why);
  CHECK(std::string{late[0].why->reason} == "tenant_concurrency");
  CHECK(d.g.ended(1, 1, at(4)));  // 4 s: another one would wait for 2
  REQUIRE_FALSE(d.arrive("a", 1, 4));
  CHECK(d.pump(4).size() == 1);
  const auto why = d.arrive("a", 1, 4);
  REQUIRE(why);
  CHECK(std::string{why->reason} == "tenant_concurrency");
  CHECK(why->http_status == 429);
  CHECK(why->retry_after.count() == Approx(1).margin(0.1));
  // Time passes: half of the way to the next end.
  CHECK(d.arrive("a", 1, 4.5)->retry_after.count() == Approx(0.5).margin(0.1));
}

TEST_CASE("limits change under way, and whoever is gone ends in order", "[admission]") {
  desk d{{limits("a", 0, 1), limits("b", 60)}, 1};
  d.pump(0);
  std::uint64_t runs = 0, waits = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 0, &runs));
  CHECK(d.pump(0).size() == 1);
  REQUIRE_FALSE(d.arrive("a", 1, 0, &waits));
  d.g.set_limits({limits("b", 120), limits("c", 0, 1)}, at(0.1));
  CHECK_FALSE(d.g.knows("a", "m"));
  CHECK(d.g.knows("c", "m"));
  CHECK(d.g.where("b", "m", at(0.1)).limit_per_minute == 120);
  CHECK(d.g.ended(runs, 1, at(0.2)));
  const auto next = d.pump(0.2);
  REQUIRE(next.size() == 1);
  CHECK(next[0].id == waits);
  CHECK(d.g.ended(waits, 1, at(0.3)));
  d.g.set_limits({limits("b", 120)}, at(0.4));
  CHECK(d.g.accounts(at(0.4)).size() == 1);
  CHECK(d.g.open() == 0);
}

TEST_CASE("what a tenant removed from the file has running is the last of it", "[admission]") {
  // How it can fail: it is shown, and counted, until somebody reloads again.
  desk d{{limits("a", 0, 1), limits("b", 0, 1)}, 1};
  d.pump(0);
  std::uint64_t runs = 0, waits = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 0, &runs));
  CHECK(d.pump(0).size() == 1);
  REQUIRE_FALSE(d.arrive("a", 1, 0, &waits));
  d.g.set_limits({limits("b", 0, 1)}, at(0.1));
  CHECK(d.g.accounts(at(0.1)).size() == 2);
  CHECK(d.g.ended(runs, 1, at(0.2)));
  CHECK_FALSE(d.g.ended(waits, 0, at(0.2)));  // its client went
  CHECK(d.g.accounts(at(0.3)).size() == 1);
}

TEST_CASE("several late requests of a tenant that was removed are all told", "[admission]") {
  // How it can fail: with the first one the tenant is forgotten, and the second has none.
  desk d{{limits("a", 0, 1), limits("b", 0, 1)}, 1};
  d.pump(0);
  REQUIRE_FALSE(d.arrive("b", 1, 0));
  CHECK(d.pump(0).size() == 1);
  for (int i = 0; i < 2; ++i) REQUIRE_FALSE(d.arrive("a", 1, 0));
  d.g.set_limits({limits("b", 0, 1)}, at(0.1));
  const auto told = d.pump(30);
  REQUIRE(told.size() == 2);
  for (const auto& v : told) CHECK(v.why);
  CHECK(d.g.accounts(at(30)).size() == 1);
}

TEST_CASE("where nothing begins for long, nothing is taken to flow, and it is forgotten soon",
          "[admission]") {
  drain_rate r;
  double now = 0;
  for (int i = 0; i <= 200; ++i) r.began(1, true, at(now += 0.25));
  CHECK(r.per_second() == Approx(4).epsilon(0.1));
  CHECK(r.since_last(at(now + 0.1)) == Approx(0.4).epsilon(0.1));
  CHECK(r.since_last(at(now + 300)) <= 1);
  // Starved for five minutes, then served as before.
  r.began(1, true, at(now += 300));
  for (int i = 0; i < 20; ++i) r.began(1, true, at(now += 0.25));
  CHECK(r.per_second() > 1);
  for (int i = 0; i < 80; ++i) r.began(1, true, at(now += 0.25));
  CHECK(r.per_second() > 3.2);
}

TEST_CASE("a request is settled by the limits that it began with", "[admission]") {
  // How it can fail: a tenant that loses its weight in between owes as much as nobody ever pays
  // back, and waits behind all others for good.
  auto was = limits("a", 0, 1), now = limits("a", 60), other = limits("b", 0, 1);
  was.wait_max = other.wait_max = milliseconds{60'000};
  desk d{{was, other}, 1};
  d.pump(0);
  std::uint64_t id = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 0, &id));
  CHECK(d.pump(0).size() == 1);
  d.g.set_limits({now, other}, at(0.1));
  CHECK(d.g.ended(id, 1.5, at(0.2)));
  d.g.set_limits({was, other}, at(0.3));
  std::uint64_t running = 0, of_a = 0;
  REQUIRE_FALSE(d.arrive("b", 1, 0.3, &running));
  CHECK(d.pump(0.3).size() == 1);
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(d.arrive("b", 1, 0.4));
  REQUIRE_FALSE(d.arrive("a", 1, 0.4, &of_a));
  for (int i = 0; i < 2; ++i) {
    CHECK(d.g.ended(running, 1, at(0.5)));
    const auto next = d.pump(0.5);
    REQUIRE(next.size() == 1);
    running = next[0].id;
    if (running == of_a) break;
  }
  CHECK(running == of_a);
}

TEST_CASE("one that was guaranteed its budget, and has it no more, falls back to best effort",
          "[admission]") {
  // How it can fail: it waits behind everybody's best effort, beside engines that are idle.
  auto a = limits("a", 60, 1);  // burst 6
  a.wait_max = milliseconds{60'000};
  desk d{{a}, 1};
  d.pump(0);
  std::uint64_t running = 0, waits = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 1, &running));
  CHECK(d.pump(1).size() == 1);
  d.g.ended(running, 0.5, at(1));
  // Something is held now: it counts as guaranteed.
  REQUIRE_FALSE(d.arrive("a", 1, 1.1, &running));
  CHECK(d.pump(1.1).size() == 1);
  REQUIRE_FALSE(d.arrive("a", 2, 1.2, &waits));
  d.pump(1.2);
  CHECK(d.g.ended(running, 40, at(1.3)));  // far more than was reserved: a debt
  const auto next = d.pump(1.3);
  REQUIRE(next.size() == 1);
  CHECK(next[0].id == waits);
  CHECK_FALSE(next[0].why);
}

TEST_CASE("what waits for capacity with its budget keeps it", "[admission]") {
  // How it can fail: words to the owner give it away meanwhile.
  auto l = limits("a", 600);
  l.wait_max = milliseconds{60'000};
  desk d{{l}, 1};
  d.pump(0);
  std::uint64_t running = 0;
  REQUIRE_FALSE(d.arrive("a", 1, 1, &running));
  CHECK(d.pump(1).size() == 1);
  REQUIRE_FALSE(d.arrive("a", 1, 1));
  d.pump(1);
  auto held = [&](double s) {
    double most = 0;
    for (const auto& w : d.g.words(at(s))) {
      most = std::max(most, w.word.held);
      d.g.answered(w.budget, "g0", d.owners.at(w.budget).answer("g0", w.word, at(s)), at(s));
    }
    return most;
  };
  for (double s = 2; s < 40; s += 0.6) held(s);
  CHECK(held(41) >= 1);
}

TEST_CASE("who fills the queue leaves room for others, and guaranteed work does not count it",
          "[admission]") {
  // How it can fail: one tenant's flood is everybody's 429.
  auto flood = limits("flood", 0, 1), other = limits("other", 0, 1), paid = limits("paid", 1e6);
  flood.wait_max = other.wait_max = milliseconds{3'600'000};
  desk d{{flood, other, paid}, 1};
  d.g.supply("m", {1, 0, 1'000'000, 1}, 1e6);
  d.pump(0);
  REQUIRE_FALSE(d.arrive("flood", 1, 0));
  CHECK(d.pump(0).size() == 1);
  double waits = 0;
  std::optional<refusal> why;
  while (!(why = d.arrive("flood", 100, 0, nullptr, 3'600))) waits += 100;
  CHECK(std::string{why->reason} == "queue_full");
  CHECK(waits == Approx(queued_mu_max / 2).margin(100));
  CHECK_FALSE(d.arrive("other", 100, 0, nullptr, 3'600));
  // As much as best effort may ever have.
  for (double mu = 0; mu < queued_mu_max / 3; mu += 100) d.arrive("other", 100, 0, nullptr, 3'600);
  REQUIRE(d.g.accounts(at(0))[1].waiting_mu > 2'000);
  CHECK_FALSE(d.arrive("paid", 3'000, 0));
}

TEST_CASE("one that is larger than all that may wait waits where nothing else does",
          "[admission]") {
  // How it can fail: it is told when to come back, and then the same, for ever.
  auto l = limits("a", 0, 1);
  l.wait_max = milliseconds{3'600'000};
  desk d{{l}, 1};
  d.pump(0);
  REQUIRE_FALSE(d.arrive("a", queued_mu_max + 1, 0, nullptr, 3'600));
  CHECK(d.pump(0).size() == 1);
  d.g.supply("m", {1, 0, 1'000'000, 1}, 1e6);
  d.pump(0);
  CHECK_FALSE(d.arrive("a", queued_mu_max + 1, 0, nullptr, 3'600));
  const auto why = d.arrive("a", 1, 0, nullptr, 3'600);
  REQUIRE(why);
  CHECK(std::string{why->reason} == "queue_full");
}

TEST_CASE("who waited in vain is told when another one would be let in", "[admission]") {
  // How it can fail: it is told to stay away for as long as all wait, while others are let in.
  auto l = limits("a", 0, 1);
  l.wait_max = milliseconds{500};
  desk d{{l}, 1};
  d.pump(0);
  REQUIRE_FALSE(d.arrive("a", 10, 0));
  CHECK(d.pump(0).size() == 1);
  REQUIRE_FALSE(d.arrive("a", 10, 0));
  const auto late = d.pump(0.7);
  REQUIRE(late.size() == 1);
  REQUIRE(late[0].why);
  CHECK(d.g.would_admit({"a", "m", 10, at(60)}, at(0.7)));
  CHECK(late[0].why->retry_after <= seconds{wait_slack});
  // Where others wait still, when they are fewer.
  REQUIRE_FALSE(d.arrive("a", 1, 0.7));
  REQUIRE_FALSE(d.arrive("a", 10, 1.1));
  const auto later = d.pump(1.35);
  REQUIRE(later.size() == 1);
  REQUIRE(later[0].why);
  const auto told = later[0].why->retry_after;
  CHECK(told > seconds{wait_slack});
  CHECK_FALSE(d.g.would_admit({"a", "m", 1, at(60)}, at(1.35 + told.count() - 0.1)));
  CHECK(d.g.would_admit({"a", "m", 1, at(60)}, at(1.35 + told.count() + 0.1)));
}

TEST_CASE("best effort is let in by the rate that guaranteed work leaves it", "[admission]") {
  // How it can fail: guaranteed work that comes later goes first, and best effort waits in vain.
  auto bulk = limits("bulk", 0, 1), paid = limits("paid", 1e6);
  bulk.wait_max = milliseconds{10'000};
  desk d{{bulk, paid}, 1};
  d.g.supply("m", {1, 0, 1'000'000, 1}, 4);
  d.pump(0);
  std::uint64_t running = 0;
  REQUIRE_FALSE(d.arrive("bulk", 1, 0, &running));
  CHECK(d.pump(0).size() == 1);
  std::size_t late = 0, begun = 0;
  // Four begin in a second, three of which are guaranteed.
  for (int i = 1; i <= 400; ++i) {
    const double t = i * 0.25;
    if (i % 4 != 0) REQUIRE_FALSE(d.arrive("paid", 1, t));
    while (!d.arrive("bulk", 1, t)) {
    }
    d.g.ended(running, 1, at(t));
    for (const auto& v : d.pump(t)) {
      if (v.why) {
        late += t > 40 ? 1 : 0;
      } else {
        running = v.id;
        ++begun;
      }
    }
  }
  CHECK(begun == 400);
  CHECK(late <= 15);  // of 60 s
  CHECK(d.g.accounts(at(100))[0].waiting <= 15);
}
