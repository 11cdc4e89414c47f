#include "actors/request/cost_metrics.hpp"
#include "actors/request/settlement.hpp"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>

#include <array>

using namespace troupe;
using namespace troupe::request;
using capacity::cost_model;
using capacity::provenance;

// How this can fail: a tenant pays for cached or repeated work, or for what a slower worker takes
// longer for; the engines' load lacks an attempt; a price is said to be better than it is.

namespace {

cost_model calibrated(double scale) {
  return cost_model::make({2e-3 * scale, 1e-7 * scale, 1e-2 * scale, 0, 1e-6 * scale, 0},
                          {"x", 1, provenance::calibrated, "costs.toml", 0})
      .value();
}

directory::entry worker(const std::string& name, const std::string& pool, msg::Role role,
                        float prefill, float decode) {
  directory::entry e;
  e.name = name;
  e.pool = pool;
  e.model = "m";
  e.role = role;
  e.prefill_speed = prefill;
  e.decode_speed = decode;
  return e;
}

job_account job(const std::string& worker, std::uint32_t attempt, const engine::job_cost& cost) {
  return {worker, 7, 0, attempt, cost, true, false};
}

ended_request ended(std::uint32_t prompt, std::uint32_t cached, std::uint32_t answer,
                    const std::vector<job_account>& jobs) {
  ended_request x;
  x.id = {1, 2};
  x.model = "m";
  x.prompts.push_back({prompt, cached, {{answer, true, false}}});
  for (const auto& j : jobs) {
    x.work.opened(j.worker, j.generation, {x.id, j.prompt, j.attempt});
    x.work.told(j.worker, {x.id, j.prompt, j.attempt}, j.cost);
  }
  return x;
}

}  // namespace

TEST_CASE("settling: one attempt costs its tenant what it costs the engines, whichever ran it") {
  cost_book book{{{"fast", "m", calibrated(1)}, {"slow", "m", calibrated(3)}}};
  book.update({{worker("both/slow/a.0", "slow", msg::Role::BOTH, 1, 1)}, {}});
  const auto expected = calibrated(1).mu({1'000, 200, 50, 0});
  for (const auto* name : {"both/slow/a.0", "both/unknown/a.0"}) {
    const auto s = settle_work(
        ended(1'000, 200, 50, {job(name, 1, guessed_cost(1'000, 200, 50, true))}), book);
    CHECK(s.tenant_mu == Approx(expected));
    CHECK(s.physical_mu == Approx(expected));  // a third of the speed, and of a unit's
    CHECK(s.price == provenance::calibrated);
    CHECK_FALSE(s.guessed);
  }
}

TEST_CASE(
    "settling: a failover is the engines' load and not the tenant's; choices share a prompt") {
  cost_book book{{{"p", "m", calibrated(1)}}};
  const auto m = calibrated(1);
  auto s = settle_work(ended(1'000, 0, 50,
                             {job("a", 1, guessed_cost(1'000, 0, 30, true)),
                              job("b", 2, guessed_cost(1'030, 0, 20, true))}),
                       book);
  CHECK(s.tenant_mu == Approx(m.mu({1'000, 0, 50, 0})));
  CHECK(s.physical_mu == Approx(m.prefill_mu(1'000, 0) + m.prefill_mu(1'030, 0) +
                                m.decode_mu(1'000, 30) + m.decode_mu(1'030, 20)));
  const std::array<choice_work, 2> choices{{{0, 50}, {0, 80}}};
  auto x = ended(1'000, 0, 50, {job("a", 1, guessed_cost(1'000, 0, choices, true))});
  x.prompts[0].answers.push_back({80, true, false});
  s = settle_work(x, book);
  CHECK(s.tenant_mu ==
        Approx(m.prefill_mu(1'000, 0) + m.decode_mu(1'000, 50) + m.decode_mu(1'000, 80)));
  CHECK(s.physical_mu == Approx(s.tenant_mu));
  // Each goes on behind its own answer, and has computed that again.
  const std::array<choice_work, 2> resumed{{{30, 20}, {50, 30}}};
  x.work.opened("b", 7, {x.id, 0, 2});
  x.work.told("b", {x.id, 0, 2}, guessed_cost(1'000, 0, resumed, true));
  const auto before = s;
  s = settle_work(x, book);
  CHECK(s.tenant_mu == Approx(before.tenant_mu));
  CHECK(s.physical_mu ==
        Approx(before.physical_mu + m.prefill_mu(1'000, 0) + m.prefill_mu(1'030, 1'000) +
               m.prefill_mu(1'050, 1'000) + m.decode_mu(1'030, 20) + m.decode_mu(1'050, 30)));
  // Several prompts are paid each.
  x = ended(1'000, 0, 50, {job("a", 1, guessed_cost(1'000, 0, 50, true))});
  x.prompts.push_back(x.prompts[0]);
  auto other = job("a", 1, guessed_cost(1'000, 0, 50, true));
  x.work.opened("a", 7, {x.id, 1, 1});
  x.work.told("a", {x.id, 1, 1}, other.cost);
  s = settle_work(x, book);
  CHECK(s.tenant_mu == Approx(2 * m.mu({1'000, 0, 50, 0})));
  CHECK(s.physical_mu == Approx(s.tenant_mu));
}

TEST_CASE("settling: what was cached at first is free, also where a later attempt computes it") {
  cost_book book{{{"p", "m", calibrated(1)}}};
  const auto m = calibrated(1);
  const auto s = settle_work(ended(3'500, 3'000, 50,
                                   {job("a", 1, guessed_cost(3'500, 3'000, 30, true)),
                                    job("b", 2, guessed_cost(3'530, 0, 20, true))}),
                             book);
  CHECK(s.tenant_mu == Approx(m.mu({3'500, 3'000, 50, 0})));
  CHECK(s.physical_mu == Approx(m.mu({3'500, 3'000, 30, 0}) + m.mu({3'530, 0, 20, 0})));
}

TEST_CASE(
    "settling: the range that was paid is that of the cost, whoever counted what was cached") {
  cost_book book{{{"p", "m", calibrated(1)}}};
  const auto m = calibrated(1);
  // Nobody has said so far that 900 were cached.
  const auto s = settle_work(ended(1'000, 0, 1, {job("a", 1, guessed_cost(1'000, 900, 1, true))}),
                             book);
  CHECK(s.tenant_mu == Approx(m.mu({1'000, 900, 1, 0})));
  CHECK(s.physical_mu == Approx(m.mu({1'000, 900, 1, 0})));
}

TEST_CASE("settling: what was never computed costs nothing, and says that it was guessed") {
  cost_book book{{{"p", "m", calibrated(1)}}};
  ended_request x;
  x.model = "m";
  x.prompts.push_back({0, 0, {{0, false, false}}});
  auto s = settle_work(x, book);
  CHECK(s.tenant_mu == 0);
  CHECK(s.physical_mu == 0);
  CHECK_FALSE(s.guessed);
  x.work.opened("a", 7, {{}, 0, 1});
  s = settle_work(x, book);
  CHECK(s.physical_mu == 0);
  CHECK(s.guessed);
}

TEST_CASE("prices: calibrated, or measured at the start, or assumed, and never better than it is") {
  cost_book book{{{"p", "m"}, {"d", "m"}}};
  CHECK(book.of_model("m").origin() == provenance::assumed);
  book.update({{worker("prefill/p/a.0", "p", msg::Role::PREFILL, 400, 5)}, {}});
  CHECK(book.of_model("m").origin() == provenance::assumed);  // prefill's decode is nobody's
  book.update({{worker("decode/d/b.0", "d", msg::Role::DECODE, 7, 50)}, {}});
  CHECK(book.of_model("m").origin() == provenance::measured);
  CHECK(book.of_model("m").in_seconds().alpha == Approx(1 / 400.0));
  CHECK(book.of_model("m").in_seconds().beta == Approx(1 / 50.0));
  // A worker's own costs are of its own hardware.
  CHECK(book.of_worker("decode/d/b.0", "m").in_seconds().alpha == Approx(1 / 7.0));
  // While it starts again its entry knows nothing, and the price stays.
  book.update({{worker("decode/d/b.0", "d", msg::Role::DECODE, 0, 0)}, {}});
  CHECK(book.of_model("m").origin() == provenance::measured);
  // Nor does it move with what engines measure when their host is busy, or with another's name.
  auto again = worker("decode/d/b.0", "d", msg::Role::DECODE, 7, 20);
  book.update({{again, worker("decode/d/a.0", "d", msg::Role::DECODE, 7, 30)}, {}});
  CHECK(book.of_model("m").in_seconds().beta == Approx(1 / 50.0));
  CHECK(book.of_worker("decode/d/b.0", "m").in_seconds().beta == Approx(1 / 20.0));
  // Other hardware has another price, once the last of the old is gone.
  again.device_class = "new";
  again.decode_speed = 200;
  book.update({{again}, {}});
  CHECK(book.of_model("m").in_seconds().beta == Approx(1 / 50.0));
  book.update({{again}, {worker("decode/d/a.0", "d", msg::Role::DECODE, 7, 30)}});
  CHECK(book.of_model("m").in_seconds().beta == Approx(1 / 200.0));
  CHECK(book.of_model("other").origin() == provenance::assumed);
}

TEST_CASE("ledgers in /metrics: both by model, and what engines' time went into") {
  auto registry = std::make_shared<prometheus::Registry>();
  cost_metrics counts{registry};
  settlement s;
  s.tenant_mu = 0.5;
  s.physical_mu = 0.75;
  s.guessed = true;
  s.jobs.push_back(job("a", 1, {}));
  s.jobs[0].cost.prefill = std::chrono::milliseconds(250);
  counts.settled("m", s, 4);
  counts.settled("m", s, 4);
  cost_metrics again{registry};  // the hub was restarted
  again.settled("m", s, 4);
  const auto text = prometheus::TextSerializer{}.Serialize(registry->Collect());
  for (const auto* line : {"troupe_model_units_total{ledger=\"tenant\",model=\"m\"} 1.5",
                           "troupe_model_units_total{ledger=\"physical\",model=\"m\"} 2.25",
                           "troupe_guessed_costs_total{model=\"m\"} 3",
                           "troupe_engine_seconds_total{model=\"m\",phase=\"prefill\"} 0.75",
                           "troupe_request_model_units_count{model=\"m\"} 3",
                           "troupe_model_unit_seconds{model=\"m\"} 4"})
    CHECK_THAT(text, Catch::Contains(line));
}
