#include "apps/bench/load.hpp"

#include "apps/bench/bench_command.hpp"
#include "apps/bench/bench_run.hpp"
#include "test_server.hpp"

#include <catch2/catch.hpp>
#include <simdjson.h>

#include <unistd.h>

#include <filesystem>
#include <sstream>

using namespace troupe::bench;
using namespace std::chrono_literals;
using troupe::bench::testing::test_server;

namespace {

const std::string token =
    R"({"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]})";
const std::string last = R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})";

void whole_stream(test_server::writer& w, int tokens, std::chrono::milliseconds gap = 0ms) {
  w.begin_stream();
  for (int i = 0; i < tokens; ++i) {
    if (gap > 0ms) std::this_thread::sleep_for(gap);
    w.event(token);
  }
  w.event(last);
  w.event("[DONE]");
  w.end_stream();
}

struct run {
  load_options options;
  plan_options planned;
  recorder records{0ns};
  load_hooks hooks;

  explicit run(const test_server& server) {
    options.targets = {{"127.0.0.1", server.port(), "", {}}};
    options.path = "/v1/chat/completions";
    hooks.body = [](const planned_request&) { return std::string{"{}"}; };
  }

  load_summary go() {
    plan p{planned};
    const auto summary = run_load(options, p, records, hooks);
    REQUIRE(summary);
    for (const auto& [kind, e] : records.errors)
      UNSCOPED_INFO(kind << " " << e.count << " " << e.first_message);
    return *summary;
  }
};

}  // namespace

TEST_CASE("of several servers, requests go round those that say that they are ready", "[bench]") {
  std::atomic<bool> first_ready{true};
  std::atomic<int> at_first{0}, at_second{0};
  test_server first{[&](const auto& request, auto& w) {
    if (request.target == "/readyz") return w.plain(first_ready ? 200 : 503, "{}");
    if (++at_first == 3) first_ready = false;
    whole_stream(w, 2);
  }};
  test_server second{[&](const auto& request, auto& w) {
    if (request.target == "/readyz") return w.plain(200, "{}");
    ++at_second;
    whole_stream(w, 2);
  }};
  run r{first};
  r.options.targets.push_back({"127.0.0.1", second.port(), "", {}});
  r.planned.rate_per_s = 20;
  r.planned.duration = 3s;
  const auto summary = r.go();
  CHECK(r.records.failed == 0);
  CHECK(r.records.whole == summary.sent);
  CHECK(at_first >= 3);
  CHECK(at_second > at_first);
}

TEST_CASE("times are those of the server's delays", "[bench]") {
  test_server server{[](const auto&, auto& w) {
    std::this_thread::sleep_for(20ms);
    whole_stream(w, 4, 10ms);
  }};
  run r{server};
  r.planned.rate_per_s = 1'000;
  r.planned.requests_max = 3;
  const auto summary = r.go();
  CHECK(summary.sent == 3);
  REQUIRE(r.records.whole == 3);
  CHECK(r.records.first_token.min() >= 30'000'000);
  CHECK(r.records.whole_answer.min() >= 60'000'000);
  CHECK(r.records.between_tokens.count() == 9);
  CHECK(r.records.between_tokens.mean() >= 8e6);
  CHECK(r.records.completion_tokens == 12);
}

TEST_CASE("an open loop does not wait for answers", "[bench]") {
  test_server server{[](const auto&, auto& w) {
    std::this_thread::sleep_for(200ms);
    whole_stream(w, 1);
  }};
  run r{server};
  r.planned.rate_per_s = 10'000;
  r.planned.requests_max = 8;
  const auto summary = r.go();
  CHECK(r.records.whole == 8);
  CHECK(summary.connections == 8);
}

TEST_CASE("latency counts from the intended time, also when connections run out", "[bench]") {
  test_server server{[](const auto&, auto& w) {
    std::this_thread::sleep_for(30ms);
    whole_stream(w, 1);
  }};
  run r{server};
  r.planned.rate_per_s = 1'000'000;
  r.planned.requests_max = 5;
  r.options.connections_max = 1;
  const auto summary = r.go();
  CHECK(r.records.whole == 5);
  CHECK(summary.connections == 1);
  CHECK(server.connections() == 1);
  CHECK(r.records.first_token.max() >= 149'000'000);
  CHECK(r.records.send_delay.max() >= 119'000'000);
}

TEST_CASE("connections are used again", "[bench]") {
  test_server server{[](const auto&, auto& w) { whole_stream(w, 2); }};
  run r{server};
  r.options.closed_loop = 2;
  r.planned.requests_max = 40;
  const auto summary = r.go();
  CHECK(r.records.whole == 40);
  CHECK(summary.connections == 2);
  CHECK(server.connections() == 2);
  CHECK(server.requests().size() == 40);
}

TEST_CASE("a connection that the server closes is replaced", "[bench]") {
  test_server server{[](const auto&, auto& w) {
    w.plain(200, R"({"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]})", false);
    w.close();
  }};
  run r{server};
  r.options.closed_loop = 1;
  r.planned.requests_max = 5;
  CHECK(r.go().connections == 5);
  CHECK(r.records.whole == 5);
}

TEST_CASE("a keep-alive connection that went stale is no error", "[bench]") {
  // Says keep-alive, and closes nevertheless.
  test_server server{[](const auto&, auto& w) {
    w.plain(200, R"({"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]})");
    w.close();
  }};
  run r{server};
  r.options.closed_loop = 1;
  r.planned.requests_max = 5;
  const auto summary = r.go();
  CHECK(r.records.whole == 5);
  CHECK(r.records.failed == 0);
  CHECK(summary.resent == 4);
}

TEST_CASE("failures are told apart", "[bench]") {
  struct row {
    const char* error;
    test_server::handler answer;
  };
  const row rows[] = {
      {"http_429",
       [](const auto&, auto& w) { w.plain(429, R"({"error":{"message":"m","code":"c"}})"); }},
      {"http_502",
       [](const auto&, auto& w) { w.raw("HTTP/1.1 502 x\r\nContent-Length: 0\r\n\r\n"); }},
      {"no_done",
       [](const auto&, auto& w) {
         w.begin_stream();
         w.event(last);
         w.end_stream();
       }},
      {"broken_stream",
       [](const auto&, auto& w) {
         w.begin_stream();
         w.event(token);
         w.close();
       }},
      {"broken_connection", [](const auto&, auto& w) { w.close(); }},
      {"error_event",
       [](const auto&, auto& w) {
         w.begin_stream();
         w.event(R"({"error":{"message":"m","code":"c"}})");
         w.end_stream();
       }},
      {"broken_connection",
       [](const auto&, auto& w) {
         w.raw("this is not HTTP\r\n\r\n");
         w.close();
       }},
      {"broken_stream",
       [](const auto&, auto& w) {
         w.begin_stream();
         w.raw("zz\r\nnot a chunk\r\n");
         w.close();
       }},
      {"timeout",
       [](const auto&, auto& w) {
         w.begin_stream();
         w.event(token);
         std::this_thread::sleep_for(400ms);
       }},
  };
  for (const auto& row : rows) {
    INFO(row.error);
    test_server server{row.answer};
    run r{server};
    r.planned.rate_per_s = 1'000;
    r.planned.requests_max = 2;
    r.options.request_timeout = 200ms;
    r.go();
    CHECK(r.records.whole == 0);
    REQUIRE(r.records.errors.size() == 1);
    CHECK(r.records.errors.begin()->first == row.error);
    CHECK(r.records.errors.begin()->second.count == 2);
    CHECK(r.records.first_token.count() == 0);
  }
}

TEST_CASE("what a refusal says of waiting", "[bench]") {
  struct row {
    std::string header;
    std::optional<double> expected;
  };
  const row rows[] = {{"Retry-After: 3\r\n", 3.0},
                      {"", std::nullopt},
                      {"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n", std::nullopt}};
  for (const auto& row : rows) {
    INFO(row.header);
    test_server server{[&](const auto&, auto& w) {
      w.raw("HTTP/1.1 429 x\r\n" + row.header + "Content-Length: 2\r\n\r\n{}");
    }};
    run r{server};
    r.planned.requests_max = 1;
    std::optional<double> told = -1;
    r.hooks.answered = [&](const planned_request&, const outcome& o) { told = o.retry_after_s; };
    r.go();
    CHECK(told == row.expected);
  }
}

TEST_CASE("answers that never come end with the drain", "[bench]") {
  test_server server{[](const auto&, auto&) { std::this_thread::sleep_for(500ms); }};
  run r{server};
  r.planned.rate_per_s = 1'000;
  r.planned.requests_max = 3;
  r.options.connections_max = 2;
  r.options.drain_timeout = 100ms;
  r.go();
  CHECK(r.records.errors.at("unfinished").count == 3);
}

TEST_CASE("nobody listens", "[bench]") {
  std::string port;
  {
    const test_server server{[](const auto&, auto&) {}};
    port = server.port();
  }
  for (const std::uint32_t closed_loop : {0U, 2U}) {
    load_options o;
    o.targets = {{"127.0.0.1", port, "", {}}};
    o.closed_loop = closed_loop;
    plan_options p;
    p.rate_per_s = closed_loop == 0 ? 1'000 : 0;
    p.requests_max = 4;
    plan requests{p};
    recorder records{0ns};
    load_hooks hooks;
    hooks.body = [](const planned_request&) { return std::string{"{}"}; };
    REQUIRE(run_load(o, requests, records, hooks));
    CHECK(records.errors.at("connect_failed").count == 4);
  }
}

TEST_CASE("URLs", "[bench]") {
  const auto parts = [](const std::string& url) {
    const auto t = parse_url(url);
    return t ? t->host + "|" + t->port + "|" + t->base_path : t.error().code;
  };
  CHECK(parts("http://127.0.0.1:8080") == "127.0.0.1|8080|");
  CHECK(parts("http://h") == "h|80|");
  CHECK(parts("http://h/") == "h|80|");
  CHECK(parts("http://h:1/v1/") == "h|1|");
  CHECK(parts("http://h:1/api/v1") == "h|1|/api");
  CHECK(parts("http://[::1]:81/x") == "::1|81|/x");
  for (const auto* bad :
       {"", "h:1", "ftp://h", "https://", "http://", "http://:1", "http://h:", "http://h:x",
        "http://h:0", "http://h:65536", "http://[::1", "http://[::1]x"}) {
    INFO(bad);
    CHECK(parts(bad) == "url_invalid");
  }
  CHECK(parts("https://h/v1") == "h|443|");
  CHECK(parse_url("http://[::1]:81")->authority() == "[::1]:81");
  CHECK(parse_url("https://h:1/x/v1")->url() == "https://h:1/x");
  CHECK_FALSE(parse_url("http://h")->https);
}

TEST_CASE("the whole command", "[bench]") {
  std::atomic<int> asked{0};
  test_server server{[&](const auto& request, auto& w) {
    if (request.target == "/readyz") return w.plain(++asked < 3 ? 503 : 200, "{}");
    if (request.target == "/v1/models") return w.plain(200, R"({"data":[{"id":"tiny"}]})");
    whole_stream(w, 3);
  }};
  const auto json = (std::filesystem::temp_directory_path() /
                     ("troupe-bench-" + std::to_string(::getpid()) + ".json"))
                        .string();
  bench_settings s;
  s.urls = {server.url() + "/v1"};
  s.rate = 500;
  s.requests = 10;
  s.prompt_tokens = "10:20";
  s.api_key = "secret";
  s.wait_ready_s = 10;
  s.cpu_of = {::getpid()};
  s.json = json;
  s.extra_body = R"({"top_p": 0.5})";
  s.strict = true;
  std::ostringstream out, err;
  CHECK(run_bench(s, out, err) == 0);
  CHECK(err.str().empty());
  CHECK(out.str().find("10 measured: 10 whole, 0 failed") != std::string::npos);
  CHECK(out.str().find("secret") == std::string::npos);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  REQUIRE_FALSE(parser.load(json).get(root));
  CHECK(std::uint64_t{root["whole"]} == 10);
  CHECK(std::uint64_t{root["completion_tokens"]} == 30);
  CHECK(std::string_view{root["settings"]["model"]} == "tiny");
  std::filesystem::remove(json);

  const auto requests = server.requests();
  REQUIRE(requests.size() == 14);
  for (std::size_t i = 4; i < requests.size(); ++i) {
    CHECK(requests[i].target == "/v1/chat/completions");
    CHECK(requests[i].authorization == "Bearer secret");
    simdjson::dom::element body;
    REQUIRE_FALSE(parser.parse(requests[i].body).get(body));
    CHECK(std::string_view{body["model"]} == "tiny");
    CHECK(double{body["top_p"]} == 0.5);
    const std::string_view content{body["messages"].at(0)["content"]};
    CHECK(content.size() >= 40);
    CHECK(content.size() <= 80);
  }
}

TEST_CASE("settings that make no sense", "[bench]") {
  const auto exit_of = [](auto change) {
    bench_settings s;
    s.urls = {"http://127.0.0.1:1"};
    s.model = "m";
    s.rate = 1;
    s.requests = 1;
    change(s);
    std::ostringstream out, err;
    const auto code = run_bench(s, out, err);
    INFO(err.str());
    CHECK(err.str().find("bench: ") == 0);
    CHECK(out.str().empty());
    return code;
  };
  CHECK(exit_of([](auto& s) { s.rate = 0; }) == 2);
  CHECK(exit_of([](auto& s) { s.connections = 1; }) == 2);
  CHECK(exit_of([](auto& s) { s.speedup = 2; }) == 2);
  CHECK(exit_of([](auto& s) { s.urls = {"ftp://x"}; }) == 2);
  CHECK(exit_of([](auto& s) { s.prompt_tokens = "5:1"; }) == 2);
  CHECK(exit_of([](auto& s) { s.prompt_tokens = "0"; }) == 2);
  CHECK(exit_of([](auto& s) {
          s.prompt_bytes = "5";
          s.prompt_tokens = "5";
        }) == 2);
  CHECK(exit_of([](auto& s) { s.max_tokens = "x"; }) == 2);
  CHECK(exit_of([](auto& s) { s.extra_body = "3"; }) == 2);
  CHECK(exit_of([](auto& s) { s.headers = {"x"}; }) == 2);
  CHECK(exit_of([](auto& s) { s.headers = {"x: y\r\nz: a"}; }) == 2);
  CHECK(exit_of([](auto& s) { s.json = "/no/such/folder/report.json"; }) == 2);
  CHECK(exit_of([](auto& s) {
          s.rate = 0;
          s.trace = "/no/such";
        }) == 2);
  CHECK(exit_of([](auto& s) { s.model = ""; }) == 1);
  CHECK(exit_of([](auto& s) { s.wait_ready_s = 0.01; }) == 1);
}

TEST_CASE("a run without a whole answer fails", "[bench]") {
  bench_settings s;
  s.urls = {"http://127.0.0.1:1"};
  s.model = "m";
  s.rate = 100;
  s.requests = 2;
  std::ostringstream out, err;
  CHECK(run_bench(s, out, err) == 1);
  CHECK(out.str().find("error connect_failed") != std::string::npos);
}

TEST_CASE("the command line of bench", "[bench]") {
  CLI::App app{"troupe"};
  int exit_code = -1;
  troupe::apps::add_bench_command(app, exit_code);
  CHECK_THROWS_AS(app.parse("bench"), CLI::ParseError);
  CHECK_THROWS_AS(app.parse("bench run"), CLI::ParseError);
  CHECK_THROWS_AS(app.parse("bench run --url http://h --rate -1"), CLI::ParseError);
  CHECK_THROWS_AS(app.parse("bench run --url http://h --rate 1 --endpoint x"), CLI::ParseError);
  app.parse("bench run --url x --rate 1 --cpu-of 1,2 --header \"A: b\"");
  CHECK(exit_code == 2);
}
