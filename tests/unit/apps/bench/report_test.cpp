#include "apps/bench/report.hpp"

#include "apps/bench/cpu_time.hpp"

#include <catch2/catch.hpp>
#include <simdjson.h>

#include <unistd.h>

using namespace troupe::bench;
using namespace std::chrono_literals;

namespace {

outcome whole(nanoseconds first, nanoseconds last, nanoseconds end, std::uint64_t tokens) {
  outcome o;
  o.first_token = first;
  o.last_token = last;
  o.end = end;
  o.completion_tokens = tokens;
  o.prompt_tokens = 100;
  o.cached_tokens = 40;
  return o;
}

outcome failed(const std::string& kind, const std::string& message, nanoseconds end) {
  outcome o;
  o.error = kind;
  o.message = message;
  o.end = end;
  return o;
}

}  // namespace

TEST_CASE("the recorder leaves the warm-up out, and errors out of the latencies", "[bench]") {
  recorder r{1s};
  CHECK_FALSE(r.counts(999ms));
  CHECK(r.counts(1s));
  r.record(500ms, whole(1s, 2s, 3s, 10));
  CHECK(r.requests() == 0);
  CHECK(r.window() == 0s);
  r.record(1s, whole(100ms, 500ms, 600ms, 5));
  r.record(2s, failed("http_503", "first", 2s));
  r.record(2s, failed("http_503", "second", 10ms));
  CHECK(r.requests() == 3);
  CHECK(r.whole == 1);
  CHECK(r.failed == 2);
  CHECK(r.window() == 3s);
  CHECK(r.first_token.count() == 1);
  CHECK(r.whole_answer.max() == 600'000'000);
  CHECK(r.per_token.max() == 100'000'000);
  CHECK(r.completion_tokens == 5);
  CHECK(r.errors.at("http_503").count == 2);
  CHECK(r.errors.at("http_503").first_message == "first");
}

TEST_CASE("an answer of one token has no time per token", "[bench]") {
  recorder r{0s};
  r.record(0s, whole(1ms, 1ms, 2ms, 1));
  CHECK(r.per_token.count() == 0);
  CHECK(r.first_token.count() == 1);
}

TEST_CASE("the report, for people and for programs", "[bench]") {
  recorder r{0s};
  for (int i = 1; i <= 1'000; ++i)
    r.record(std::chrono::milliseconds{i},
             whole(std::chrono::milliseconds{i}, std::chrono::milliseconds{i + 90},
                   std::chrono::milliseconds{i + 100}, 10));
  r.record(1s, failed("no_done", "cut \"off\"", 1ms));
  run_report report;
  report.settings = {{"url", "h:1/v1"}, {"seed", "7"}};
  report.records = &r;
  report.load.sent = 1'001;
  report.cpu = {{"troupe", 42, 2'002ms}, {"gone", 43, std::nullopt}};
  report.cpu_window = 4'004ms;
  report.own_cpu = 100ms;

  const auto table = table_of(report);
  for (const auto* part : {"seed                         7", "1001 measured: 1000 whole, 1 failed",
                           "first token                      500.",
                           "error no_done                1; the first: cut \"off\"",
                           "troupe (42)                      0.50         2000.0         200.20",
                           "gone (43)                    ended during the run"}) {
    INFO(table);
    INFO(part);
    CHECK(table.find(part) != std::string::npos);
  }
  CHECK(table.find("between tokens") == std::string::npos);

  simdjson::dom::parser parser;
  simdjson::dom::element root;
  REQUIRE_FALSE(parser.parse(json_of(report)).get(root));
  const auto number = [&](const char* pointer) {
    double value = -1;
    INFO(pointer);
    REQUIRE_FALSE(root.at_pointer(pointer).get(value));
    return value;
  };
  CHECK(number("/whole") == 1'000);
  CHECK(number("/failed") == 1);
  CHECK(number("/first_token_ms/p50") == Approx(500).epsilon(0.002));
  CHECK(number("/first_token_ms/p99.9") == Approx(999).epsilon(0.002));
  CHECK(number("/first_token_ms/max") == 1'000);
  CHECK(number("/per_token_ms/p50") == Approx(10).epsilon(0.002));
  CHECK(number("/errors/no_done/count") == 1);
  CHECK(number("/cpu/0/us_per_request") == Approx(2'000));
  CHECK(number("/cpu/0/us_per_token") == Approx(200.2));
  CHECK(number("/window_s") == Approx(2.099));
  CHECK(number("/tokens_per_second") == Approx(10'000 / 2.099));
}

TEST_CASE("an answer as a line: what it was, when, and what a refusal said of waiting", "[bench]") {
  planned_request request;
  request.index = 7;
  request.at = 1'500ms;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  REQUIRE_FALSE(parser.parse(json_of_answer(request, whole(100ms, 500ms, 600ms, 5))).get(root));
  CHECK(std::uint64_t{root["request"]} == 7);
  CHECK(double{root["at_ms"]} == 1'500);
  CHECK(double{root["first_token_ms"]} == 100);
  CHECK(double{root["end_ms"]} == 600);
  CHECK(std::uint64_t{root["tokens"]} == 5);
  CHECK(std::uint64_t{root["prompt_tokens"]} == 100);
  CHECK(std::uint64_t{root["cached_tokens"]} == 40);
  CHECK(root["retry_after_s"].is_null());

  auto refused = failed("http_429", "capacity", 3ms);
  refused.retry_after_s = 2;
  REQUIRE_FALSE(parser.parse(json_of_answer(request, refused)).get(root));
  CHECK(root["first_token_ms"].is_null());
  CHECK(double{root["retry_after_s"]} == 2);
}

TEST_CASE("CPU time out of /proc", "[bench]") {
  const auto tail = " S 1 2 3 4 5 6 7 8 9 10 150 50 99 99 20 0 1";
  CHECK(parse_proc_stat(std::string{"12 (troupe)"} + tail, 100) == 2s);
  CHECK(parse_proc_stat(std::string{"12 (a) b) (c)"} + tail, 100) == 2s);
  CHECK_FALSE(parse_proc_stat("", 100));
  CHECK_FALSE(parse_proc_stat("12 (troupe) S 1 2", 100));
  CHECK_FALSE(parse_proc_stat("12 (troupe) S 1 2 3 4 5 6 7 8 9 10 x 50", 100));

  REQUIRE(cpu_time_of(::getpid()));
  CHECK_FALSE(cpu_time_of(-1));
  CHECK(name_of(-1) == "-1");
  CHECK_FALSE(name_of(::getpid()).empty());
  CHECK(own_cpu_time() > 0ns);
}
