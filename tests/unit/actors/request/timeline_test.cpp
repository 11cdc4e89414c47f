#include "actors/request/timeline.hpp"

#include <catch2/catch.hpp>
#include <simdjson.h>

#include <string>

using namespace troupe::request;

namespace {

timeline whole() {
  timeline t;
  t.id = "req-\"1\"\n";
  t.model = "m";
  t.status = "done";
  t.prompt_tokens = 100;
  t.cached_tokens = 40;
  t.completion_tokens = 11;
  t.ttft_ms = 20;
  t.total_ms = 120;
  t.finish = "stop";
  attempt_record a;
  a.plan = "full";
  a.route_reason = "score 1";
  a.prefill_worker = "prefill/p/a.0";
  a.decode_worker = "decode/p/b.0";
  a.error = "worker_lost: gone";
  t.attempts.push_back(a);
  a.error.clear();
  a.prefill_done = true;
  a.queue_ms = 1.5;
  a.compute_ms = 2.25;
  a.prefill_cached_tokens = 32;
  a.transfer_bytes = 5'000'000'000;
  a.pieces = 4;
  a.transfer_ms = 3;
  a.exposed_ms = 0.5;
  a.transport = "ucx";
  a.from_token = 32;
  a.to_token = 99;
  t.attempts.push_back(a);
  return t;
}

}  // namespace

TEST_CASE("a timeline is JSON with all that is known, and nothing that is not") {
  const auto json = to_json(whole());
  simdjson::dom::parser parser;
  simdjson::dom::element e;
  REQUIRE(parser.parse(json).get(e) == simdjson::SUCCESS);
  CHECK(std::string_view{e["id"]} == "req-\"1\"\n");
  CHECK(std::string_view{e["status"]} == "done");
  CHECK(std::string_view{e["finish"]} == "stop");
  CHECK(std::uint64_t{e["prompt_tokens"]} == 100);
  CHECK(std::uint64_t{e["cached_tokens"]} == 40);
  CHECK(std::uint64_t{e["completion_tokens"]} == 11);
  CHECK(double{e["ttft_ms"]} == 20);
  CHECK(double{e["tokens_per_second"]} == Approx(100));
  auto first = e["attempts"].at(0), second = e["attempts"].at(1);
  CHECK(std::string_view{first["error"]} == "worker_lost: gone");
  CHECK(first["transfer"].error() == simdjson::NO_SUCH_FIELD);
  CHECK(first["prefill"]["queue_ms"].error() == simdjson::NO_SUCH_FIELD);
  CHECK(std::string_view{second["plan"]} == "full");
  CHECK(second["error"].error() == simdjson::NO_SUCH_FIELD);
  CHECK(std::string_view{second["prefill"]["worker"]} == "prefill/p/a.0");
  CHECK(double{second["prefill"]["compute_ms"]} == 2.25);
  CHECK(std::uint64_t{second["prefill"]["cached_tokens"]} == 32);
  CHECK(std::string_view{second["decode"]["worker"]} == "decode/p/b.0");
  auto transfer = second["transfer"];
  CHECK(std::uint64_t{transfer["bytes"]} == 5'000'000'000);
  CHECK(std::uint64_t{transfer["pieces"]} == 4);
  CHECK(double{transfer["exposed_ms"]} == 0.5);
  CHECK(std::string_view{transfer["transport"]} == "ucx");
  CHECK(std::uint64_t{transfer["from_token"]} == 32);
  CHECK(std::uint64_t{transfer["to_token"]} == 99);
}

TEST_CASE("before the first token there is no time to it and no speed") {
  auto t = whole();
  t.ttft_ms = -1;
  t.finish.clear();
  simdjson::dom::parser parser;
  const auto json = to_json(t);
  simdjson::dom::element e;
  REQUIRE(parser.parse(json).get(e) == simdjson::SUCCESS);
  CHECK(e["ttft_ms"].error() == simdjson::NO_SUCH_FIELD);
  CHECK(e["tokens_per_second"].error() == simdjson::NO_SUCH_FIELD);
  CHECK(e["finish"].error() == simdjson::NO_SUCH_FIELD);
}

TEST_CASE("the store keeps the last of each id, and forgets the oldest above its limit") {
  timeline_store store;
  auto t = whole();
  for (std::size_t i = 0; i < timelines_max + 10; ++i) {
    t.id = std::to_string(i);
    t.status = "running";
    store.put(t);
    t.status = "done";
    store.put(t);
  }
  CHECK(store.get("9").empty());
  CHECK_THAT(store.get("10"), Catch::Contains("\"done\""));
  CHECK_THAT(store.get(std::to_string(timelines_max + 9)),
             Catch::Contains("\"done\"") && !Catch::Contains("running"));
  CHECK(store.get("nobody").empty());
}

TEST_CASE("each tenant has its own timelines, also under the same id") {
  timeline_store store;
  auto t = whole();
  t.id = "x";
  for (const std::string tenant : {"b", "a"}) {
    t.tenant = tenant;
    store.put(t);
  }
  CHECK_THAT(store.get("x", "a"), Catch::Contains("\"tenant\":\"a\""));
  CHECK_THAT(store.get("x", "b"), Catch::Contains("\"tenant\":\"b\""));
  CHECK(store.get("x", "c").empty());
  CHECK(store.get("x", "").empty());
  CHECK_FALSE(store.get("x").empty());
  CHECK(store.get("w").empty());
}

TEST_CASE("a timeline tells what a request has cost, and keeps it when it is put in again") {
  timeline_store store;
  auto t = whole();
  t.request = {1, 2};
  store.put(t);
  auto s = std::make_shared<settlement>();
  s->tenant_mu = 0.25;
  s->physical_mu = 0.5;
  s->price = troupe::capacity::provenance::measured;
  s->jobs.push_back({"both/p/a.0", 7, 0, 1, {}, true, false});
  s->jobs[0].cost.decode = std::chrono::microseconds(1'500);
  s->jobs[0].cost.sampled = 7;
  ended_request x;
  x.id = t.request;
  x.external_id = t.id;
  store.settle(x, s);
  x.external_id = "unknown";
  store.settle(x, s);
  store.put(t);
  simdjson::dom::parser parser;
  auto json = store.get(t.id);
  simdjson::dom::element e;
  REQUIRE(parser.parse(json).get(e) == simdjson::SUCCESS);
  CHECK(double{e["model_units"]["tenant"]} == 0.25);
  CHECK(double{e["model_units"]["physical"]} == 0.5);
  CHECK(std::string_view{e["model_units"]["costs"]} == "measured");
  CHECK(double{e["cost"]["decode_ms"]} == 1.5);
  CHECK(std::uint64_t{e["cost"]["jobs"].at(0)["sampled_tokens"]} == 7);
  // Another request by the same name begins without.
  t.request = {1, 3};
  store.put(t);
  CHECK_THAT(store.get(t.id), !Catch::Contains("model_units"));
  // What the first one's workers tell late is not taken for its cost.
  x.external_id = t.id;
  store.settle(x, s);
  CHECK_THAT(store.get(t.id), !Catch::Contains("model_units"));
}
