// What requests have cost, from the words of workers to the ledgers.
//
// How this can fail: a request is settled never, twice or too early; a cost that comes late, or for
// an attempt that is over, is lost; somebody who never tells is waited for for ever.

#include "actors/request/work_log.hpp"
#include "tests/actor/request/stage.hpp"

#include <prometheus/text_serializer.h>
#include <simdjson.h>

using namespace troupe;
using namespace troupe::test;

namespace {

struct ledgers : stage {
  const capacity::cost_model price = capacity::cost_model::assumed();

  std::string text() const { return prometheus::TextSerializer{}.Serialize(metrics->Collect()); }
  double figure(const std::string& series) const {
    const auto all = text();
    const auto at = all.find(series + " ");
    return at == std::string::npos ? 0 : std::stod(all.substr(at + series.size() + 1));
  }
  double tenant() const {
    return figure("troupe_model_units_total{ledger=\"tenant\",model=\"m\"}");
  }
  double physical() const {
    return figure("troupe_model_units_total{ledger=\"physical\",model=\"m\"}");
  }
  int settled() const {
    return static_cast<int>(figure("troupe_request_model_units_count{model=\"m\"}"));
  }
  int guessed() const {
    return static_cast<int>(figure("troupe_guessed_costs_total{model=\"m\"}"));
  }
};

engine::job_cost cost(std::uint32_t context, std::uint32_t cached, std::uint32_t came) {
  return request::guessed_cost(context, cached, came, true);
}

}  // namespace

TEST_CASE_METHOD(ledgers, "a request is settled when its last token is there, by what that says") {
  auto c = submit();
  const auto key = asked_once().key;
  route(key, both);
  accept(key, both, 100, 40);
  const auto all = cost(100, 40, 2);
  tokens(key, both, 0, {1});
  CHECK(settled() == 0);
  tokens(key, both, 1, {2}, stop, 0, &all);
  CHECK(settled() == 1);
  CHECK(tenant() == Approx(price.mu({100, 40, 2, 0})));
  CHECK(physical() == Approx(price.mu({100, 40, 2, 0})));
  job_done(key, both, &all);
  advance(5s);
  CHECK(settled() == 1);
  CHECK(guessed() == 0);
  const auto json = hub.front->timeline_json(c.external_id);
  CHECK_THAT(json, Catch::Contains("\"model_units\"") && Catch::Contains("\"assumed\""));
}

TEST_CASE_METHOD(ledgers, "prefill's cost may come after the last token") {
  submit();
  const auto key = asked_once().key;
  route(key, decode, &prefill);
  accept(key, prefill, 100);
  const auto at_decode = request::guessed_cost(100, 0, 1, false), at_prefill = cost(100, 0, 0);
  tokens(key, decode, 0, {1}, stop, 0, &at_decode);
  CHECK(settled() == 0);
  SECTION("at once") {}
  SECTION("when its request has left") { advance(1s); }
  prefill_done(key, 0, nullptr, &at_prefill);
  CHECK(settled() == 1);
  CHECK(guessed() == 0);
  CHECK(tenant() == Approx(price.mu({100, 0, 1, 0})));
  CHECK(physical() == Approx(price.mu({100, 0, 1, 0})));
}

TEST_CASE_METHOD(ledgers, "a cancelled request pays what was done, once its worker has told") {
  auto c = submit();
  const auto key = asked_once().key;
  route(key, both);
  auto done = cost(100, 0, 0);
  auto paid = price.prefill_mu(60, 0);
  SECTION("in its prompt") { done = cost(60, 0, 0); }
  SECTION("in the answer") {
    accept(key, both, 100);
    tokens(key, both, 0, {1});
    done = cost(100, 0, 3);  // two that nobody received
    paid = price.mu({100, 0, 1, 0});
  }
  hub.front->cancel(c.id, "client went away");
  run();
  CHECK(settled() == 0);
  job_done(key, both, &done);
  CHECK(settled() == 1);
  CHECK(guessed() == 0);
  CHECK(physical() ==
        Approx(price.prefill_mu(done.computed, 0) + price.decode_mu(done.computed, done.sampled)));
  CHECK(tenant() == Approx(paid));
}

TEST_CASE_METHOD(ledgers, "a cost that is on its way to a request that ends is not lost") {
  auto c = submit();
  const auto key = asked_once().key;
  route(key, both);
  const auto done = cost(60, 0, 0);
  // The hub passes on both before it hears that the request is over.
  hub.front->cancel(c.id, "client went away");
  SECTION("done") {
    job_done(key, both, &done);
    CHECK(physical() == Approx(price.prefill_mu(60, 0)));
  }
  SECTION("rejected") {
    bad_end<msg::Rejected>(key, both, 503, "no_room", true);
    CHECK(physical() == 0);
  }
  CHECK(settled() == 1);
  CHECK(guessed() == 0);
  check_all_released();
}

TEST_CASE_METHOD(ledgers, "a failover's first attempt counts, also when its cost comes late") {
  submit();
  auto key = asked_once().key;
  route(key, both);
  accept(key, both, 100);
  tokens(key, both, 0, {1, 2});
  const auto before = key;
  bad_end<msg::JobFailed>(key, both, 503, "lease_lapsed", true);
  key = asked_in_time().key;
  route(key, second);
  const auto first = cost(100, 0, 3), again = cost(102, 0, 1);
  job_done(before, both, &first);
  tokens(key, second, 2, {3}, stop, 0, &again);
  CHECK(settled() == 1);
  CHECK(guessed() == 0);
  CHECK(tenant() == Approx(price.mu({100, 0, 3, 0})));
  CHECK(physical() == Approx(price.prefill_mu(100, 0) + price.decode_mu(100, 3) +
                             price.prefill_mu(102, 0) + price.decode_mu(102, 1)));
}

TEST_CASE_METHOD(ledgers, "who never tells is waited for for so long, and guessed") {
  submit();
  const auto key = asked_once().key;
  route(key, both);
  accept(key, both, 100);
  tokens(key, both, 0, {1}, stop);  // of a build that tells no costs
  advance(request::costs_wait - 100ms);
  CHECK(settled() == 0);
  advance(200ms);
  CHECK(settled() == 1);
  CHECK(guessed() == 1);
  CHECK(tenant() == Approx(price.mu({100, 0, 1, 0})));
}

TEST_CASE_METHOD(ledgers, "of too many that are waited for, the oldest are guessed") {
  const auto one = [&] {
    auto c = submit();
    const auto key = asked_once().key;
    route(key, both);
    hub.front->cancel(c.id, "client went away");
    run();
    return key;
  };
  const auto first = one(), second = one();
  for (std::size_t i = 2; i < request::unsettled_max; ++i) one();
  CHECK(settled() == 0);
  one();
  CHECK(settled() == 1);
  CHECK(guessed() == 1);
  const auto done = cost(100, 0, 0);
  job_done(first, both, &done);  // too late
  CHECK(settled() == 1);
  job_done(second, both, &done);
  CHECK(settled() == 2);
  CHECK(guessed() == 1);
}

TEST_CASE_METHOD(ledgers, "nobody waits for a worker that is lost") {
  submit({.timeout = 1s});
  const auto key = asked_once().key;
  route(key, both);
  accept(key, both, 100);
  tokens(key, both, 0, {1});
  leaves(both);
  advance(1s);  // there is no other: the deadline ends it
  CHECK(settled() == 1);
  CHECK(guessed() == 1);
  CHECK(tenant() == Approx(price.mu({100, 0, 1, 0})));
}

TEST_CASE_METHOD(ledgers, "what was never computed costs nothing") {
  auto c = submit();
  auto key = asked_once().key;
  SECTION("no route") { refuse(key, 503, "no_worker"); }
  SECTION("rejected") {
    route(key, both);
    bad_end<msg::Rejected>(key, both, 400, "context_length_exceeded", false, "messages");
  }
  SECTION("cancelled before") {
    hub.front->cancel(c.id, "client went away");
    run();
  }
  CHECK(settled() == 1);
  CHECK(guessed() == 0);
  CHECK(physical() == 0);
}
