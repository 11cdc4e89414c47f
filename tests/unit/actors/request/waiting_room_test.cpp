#include "actors/request/waiting_room.hpp"

#include "actors/admission/budget_owner.hpp"
#include "actors/request/supply_book.hpp"
#include "tests/support/overload_world.hpp"

#include <catch2/catch.hpp>

#include <kj/array.h>

#include <algorithm>
#include <cstdio>

using namespace troupe;
using namespace troupe::request;
using namespace std::chrono_literals;

namespace {

// How it can fail: a request that is answered twice, or never; one that leaves a reservation, a
// place or its ticket behind; a price by the wrong count of prompts, choices or tokens.

using room_time = waiting_room::time_point;
const room_time t0{1h};

struct sink final : client_sink {
  std::vector<rate_standing> standings;
  void on_standing(const rate_standing& at) override { standings.push_back(at); }
  void on_accepted(std::uint16_t, std::uint32_t, std::uint32_t, const std::string&) override {}
  void on_delta(std::uint16_t, msg::StreamDelta::Reader) override {}
  void on_finished(const totals&) override {}
  void on_failed(const failure&) override {}
};

troupe::admission::tenant_limits limits(const std::string& tenant, double guaranteed,
                                        double weight) {
  troupe::admission::tenant_limits l;
  l.tenant = tenant;
  l.model = "m";
  l.guaranteed_per_minute = guaranteed;
  l.burst = guaranteed / 10;
  l.best_effort_weight = weight;
  l.wait_max = 5s;
  return l;
}

struct scene {
  std::shared_ptr<request::admission> places = std::make_shared<request::admission>(100, 1U << 30U);
  capacity::cost_model price = capacity::cost_model::assumed();
  capacity::output_forecast forecast;
  waiting_room room;
  std::uint64_t next = 1;

  explicit scene(std::vector<troupe::admission::tenant_limits> all, std::uint32_t slots = 1)
      : room(std::move(all), "g", {"g"}, 256, t0) {
    room.gate().supply("m", {slots, 0, 1'024, 1, 1}, 1 / price.seconds_per_mu());
  }
  std::shared_ptr<submission> request(const std::string& tenant, std::size_t prompts = 1,
                                      std::uint16_t choices = 1) {
    auto s = std::make_shared<submission>();
    s->id = {5, next++};
    s->tenant = tenant;
    s->model = "m";
    s->choices = choices;
    s->max_tokens = 100;
    s->timeout = 60s;
    auto content = std::make_shared<prompt_content>();
    content->words = kj::heapArray<capnp::word>(1'000);
    s->prompts.assign(prompts, content);
    s->client = std::make_shared<sink>();
    return s;
  }
  std::vector<waiting_room::outcome> arrive(const std::shared_ptr<submission>& s,
                                            std::chrono::milliseconds at) {
    auto place = places->enter(8'000);
    REQUIRE(place);
    return room.arrive({s, std::shared_ptr<ticket>{*std::move(place)}}, {price, forecast, 4},
                       t0 + at);
  }
};

}  // namespace

TEST_CASE("a tenant may have as much waiting as the node has free besides") {
  // How it can fail: one tenant's prompts are all that the node may hold; or who waits for one
  // place is refused because there is no second one.
  auto patient = limits("a", 0, 1), other = limits("b", 0, 1);
  patient.wait_max = other.wait_max = 1h;
  scene s{{patient, other}};
  const auto ask = [&](const std::string& tenant, std::uint64_t requests, std::uint64_t bytes) {
    const auto what = s.request(tenant);
    const waiting_room::terms t{s.price, s.forecast, 4, requests, bytes};
    const auto all = s.room.arrive({what, nullptr}, t, t0);
    return all.empty() ? std::string{"waits"}
                       : (all.back().why ? all.back().why->code : std::string{"begins"});
  };
  CHECK(ask("a", 0, 0) == "begins");
  CHECK(ask("a", 0, 0) == "waits");
  CHECK(ask("a", 0, 1'000'000) == "queue_full");
  CHECK(ask("a", 1, 1'000'000) == "waits");
  CHECK(ask("a", 100, 1) == "queue_full");
  CHECK(ask("b", 0, 0) == "waits");
  CHECK(s.room.crowds().at({"a", "m"}).requests == 2);
}

TEST_CASE("what is reserved: each prompt, each choice, answers as long as they mostly are",
          "[request]") {
  scene s{{limits("a", 0, 1)}};
  std::uint64_t tokens = 0;
  const waiting_room::terms t{s.price, s.forecast, 4};
  const auto one = reserve_mu(*s.request("a"), t, tokens);
  CHECK(tokens == 2'000);
  CHECK(one == Approx(s.price.mu({2'000, 0, 100, 0})));
  const auto more = reserve_mu(*s.request("a", 3, 2), t, tokens);
  CHECK(tokens == 6'000);
  CHECK(more == Approx(3 * (s.price.prefill_mu(2'000, 0) + 2 * s.price.decode_mu(2'000, 100))));
  for (int i = 0; i < 50; ++i) s.forecast.learn("a", "m", 10);
  CHECK(reserve_mu(*s.request("a"), t, tokens) < one);
}

TEST_CASE("one begins, one waits, and each ends once", "[request]") {
  scene s{{limits("a", 0, 1)}};
  const auto first = s.request("a"), second = s.request("a");
  const auto begun = s.arrive(first, 0ms);
  REQUIRE(begun.size() == 1);
  CHECK_FALSE(begun[0].why);
  CHECK(begun[0].who.what == first);
  CHECK(s.arrive(second, 1ms).empty());
  CHECK(s.room.waiting().size() == 1);
  CHECK(s.room.begun() == 1);
  s.room.settled(second->id, 1, t0 + 2ms);  // it hasn't begun: nothing happens
  CHECK(s.room.waiting().size() == 1);
  s.room.over(first->id, t0 + 1s);
  const auto next = s.room.pump("m", t0 + 1s);
  REQUIRE(next.size() == 1);
  CHECK(next[0].who.what == second);
  CHECK(s.room.gate().reserved_mu() > 0);
  for (int twice = 0; twice < 2; ++twice) {
    s.room.settled(first->id, 0.5, t0 + 2s);
    s.room.settled(second->id, 0.25, t0 + 2s);
  }
  CHECK(s.room.begun() == 0);
  CHECK(s.room.gate().reserved_mu() == Approx(0).margin(1e-9));
  CHECK(s.room.gate().accounts(t0 + 2s)[0].charged_mu == Approx(0.75));
}

TEST_CASE("who leaves, is too late, or is refused, takes the ticket along", "[request]") {
  scene s{{limits("a", 0, 1)}};
  const auto first = s.request("a"), leaves = s.request("a"), late = s.request("a");
  s.arrive(first, 0ms);
  s.arrive(leaves, 0ms);
  CHECK(s.places->open() == 1);  // the first one's went with its outcome
  CHECK(s.room.leave(leaves->id, t0 + 1ms)->what == leaves);
  CHECK_FALSE(s.room.leave(leaves->id, t0 + 1ms));
  CHECK_FALSE(s.room.leave(first->id, t0 + 1ms));
  CHECK(s.places->open() == 0);
  s.arrive(late, 1ms);
  const auto over = s.room.pump({}, t0 + 6s);
  REQUIRE(over.size() == 1);
  REQUIRE(over[0].why);
  CHECK(over[0].why->code == "capacity");
  CHECK(over[0].why->http_status == 429);
  CHECK(over[0].why->retry_after > 0ms);
  CHECK(s.room.waiting().empty());
  const auto unknown = s.arrive(s.request("nobody"), 7'000ms);
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].why->http_status == 403);
}

TEST_CASE("a client hears where its tenant stands, once", "[request]") {
  scene s{{limits("a", 60, 0)}, 4};
  troupe::admission::budget_owner owner{{60, 6, 0, 0, 1}, {"g"}, 1, t0};
  const auto talk = [&](std::chrono::milliseconds at) {
    for (int i = 0; i < 3; ++i)
      for (const auto& w : s.room.gate().words(t0 + at))
        s.room.gate().answered(w.budget, "g", owner.answer("g", w.word, t0 + at), t0 + at);
  };
  talk(0ms);
  const auto r = s.request("a");
  CHECK(s.arrive(r, 600ms).empty());  // its slice is not here yet
  talk(600ms);
  REQUIRE(s.room.pump("m", t0 + 600ms).size() == 1);
  const auto& told = std::static_pointer_cast<sink>(r->client)->standings;
  REQUIRE(told.size() == 1);
  CHECK(told[0].limit_per_minute == 60);
  CHECK(told[0].remaining < 6);
  CHECK(told[0].reset > 0ms);
}

TEST_CASE("what engines can take, by directory and reports", "[request]") {
  // How it can fail: workers that are gone, or not ready, are counted on; a pool of prefill workers
  // that counts as one.
  supply_book book{{{"p", 512}, {"d", 256}}};
  cost_book costs{std::vector<cost_book::pool>{}};
  directory::snapshot all;
  directory::change c;
  const auto add = [&](const std::string& name, msg::Role role, const std::string& pool,
                       msg::EntryState state) {
    auto& e = all[name];
    e.name = name;
    e.generation = 7;
    e.role = role;
    e.state = state;
    e.model = "m";
    e.pool = pool;
    e.slots = 8;
    c.added_or_changed.push_back(e);
  };
  add("prefill/p/a.0", msg::Role::PREFILL, "p", msg::EntryState::READY);
  add("prefill/p/a.1", msg::Role::PREFILL, "p", msg::EntryState::READY);
  add("decode/d/b.0", msg::Role::DECODE, "d", msg::EntryState::READY);
  add("decode/d/b.1", msg::Role::DECODE, "d", msg::EntryState::LOADING);
  book.update(c);
  costs.update(c);
  book.note("decode/d/b.0", {7, 3, 2, 2.0, t0});
  book.note("decode/d/b.1", {7, 5, 5, 0, t0});
  auto s = book.supply(all, costs, t0)["m"];
  CHECK(s.window.slots == 8);
  CHECK(s.window.in_use == 5);
  CHECK(s.window.prefill_workers == 2);
  CHECK(s.window.prefill_tokens == 2 * prefill_ahead_steps * 512);
  CHECK(s.mu_per_second > 0);
  CHECK(book.bytes_per_token("m") == 2.0);
  CHECK(book.bytes_per_token("other") == bytes_per_token_assumed);
  book.note("decode/d/b.1", {7, 5, 5, 4.0, t0});
  CHECK(book.bytes_per_token("m") == 3.0);
  book.note("decode/d/b.1", {7, 5, 5, 0, t0});  // it has measured nothing
  CHECK(book.bytes_per_token("m") == 2.0);
  // Of one that drains, what it still runs; it has told of more than it has places for.
  all.at("decode/d/b.1").state = msg::EntryState::DRAINING;
  s = book.supply(all, costs, t0)["m"];
  CHECK(s.window.slots == 8);
  CHECK(s.window.in_use == 5);
  CHECK(s.window.leaving == 8);
  all.at("decode/d/b.1").state = msg::EntryState::LOADING;
  book.note("decode/d/b.0", {6, 8, 8, 2.0, t0});  // of a life before
  CHECK(book.supply(all, costs, t0)["m"].window.in_use == 0);
  directory::change gone;
  gone.removed.push_back(all.at("decode/d/b.0"));
  all.erase("decode/d/b.0");
  book.update(gone);
  s = book.supply(all, costs, t0)["m"];
  CHECK(s.window.slots == 0);
  CHECK(s.mu_per_second == 0);
  CHECK(book.bytes_per_token("m") == bytes_per_token_assumed);
}

TEST_CASE("a worker whose reports no longer come is as busy as the others, not as it was",
          "[request]") {
  // How it can fail: a last word that stands for ever, or silence that counts as idle.
  supply_book book{{}};
  cost_book costs{std::vector<cost_book::pool>{}};
  directory::snapshot all;
  directory::change c;
  for (const auto* name : {"both/p/a.0", "both/p/a.1", "both/p/a.2"}) {
    auto& e = all[name];
    e.name = name;
    e.generation = 7;
    e.role = msg::Role::BOTH;
    e.state = msg::EntryState::READY;
    e.model = "m";
    e.slots = 8;
    c.added_or_changed.push_back(e);
  }
  book.update(c);
  const auto in_use = [&](room_time now) {
    return book.supply(all, costs, now)["m"].window.in_use;
  };
  CHECK(in_use(t0) == 0);  // none has said anything yet
  book.note("both/p/a.0", {7, 8, 4, 0, t0});
  CHECK(in_use(t0 + supply_stale_after) == 12);
  CHECK(in_use(t0 + 1h) == 12);  // there is nobody to go by
  book.note("both/p/a.1", {7, 2, 0, 0, t0 + 6s});
  CHECK(in_use(t0 + supply_stale_after) == 14);
  CHECK(in_use(t0 + 6s) == 4);
  book.note("both/p/a.2", {7, 7, 0, 0, t0 + 6s});
  CHECK(in_use(t0 + 6s) == 9 + 5);
  book.note("both/p/a.0", {7, 1, 0, 0, t0 + 7s});
  CHECK(in_use(t0 + 7s) == 10);
}

TEST_CASE("overload 5x: capacity is used, and Retry-After is right", "[request]") {
  // How it can fail: a time at which the client is refused again, or one long after it would have
  // been let in; engines that idle while requests are refused.
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    overload_world::options o;
    o.seed = seed;
    o.engines.engines = 8;
    o.warm_s = 20;
    o.measured_s = 30;
    o.after_s = 20;
    // One who has a limit, one who may have one of its own at a time for each engine, two who
    // share.
    o.clients = {{limits("limited", 150, 0)},
                 {limits("capped", 0, 1)},
                 {limits("b", 0, 1)},
                 {limits("c", 0, 2)}};
    o.clients[1].limits.open_max = 8;
    for (auto& c : o.clients) c.limits.wait_max = 2s;
    overload_world w{o};
    w.run();
    const auto& all = w.all_refused();
    REQUIRE(all.size() > 500);
    for (const auto* code : {"tenant_limit", "tenant_concurrency", "capacity"})
      CHECK(std::any_of(all.begin(), all.end(), [&](const auto& r) { return r.code == code; }));
    const auto share = static_cast<double>(
                           std::count_if(all.begin(), all.end(),
                                         [](const auto& r) { return r.header_right(); })) /
                       static_cast<double>(all.size());
    std::printf(
        "overload 5x, seed %zu: %.1f %% of the slots used; Retry-After right for %.1f %% of "
        "%zu refusals\n",
        static_cast<std::size_t>(seed), 100 * w.used(), 100 * share, all.size());
    CHECK(w.used() >= 0.95);
    CHECK(share >= 0.9);
  }
}
