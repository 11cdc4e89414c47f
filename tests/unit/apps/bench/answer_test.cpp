#include "apps/bench/answer.hpp"

#include "apps/bench/request_body.hpp"

#include <catch2/catch.hpp>

using namespace troupe::bench;
using namespace std::chrono_literals;

namespace {

const std::string role =
    R"(data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null})"
    "\n\n";
const std::string last = R"(data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})"
                         "\n\n";
const std::string usage =
    R"(data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}})"
    "\n\n";
const std::string done = "data: [DONE]\n\n";

std::string token(const std::string& text) {
  return R"(data: {"choices":[{"index":0,"delta":{"content":")" + text +
         "\"},\"finish_reason\":null}]}\n\n";
}

struct fixture {
  simdjson::dom::parser parser;
  histogram gaps;
  answer_reader reader{parser, &gaps};

  outcome stream(const std::string& body) {
    reader.on_header(200, true);
    reader.on_body(body, 10ms);
    return reader.finish(20ms);
  }
  outcome plain(unsigned status, const std::string& body) {
    reader.on_header(status, false);
    reader.on_body(body.substr(0, body.size() / 2), 10ms);
    reader.on_body(body.substr(body.size() / 2), 11ms);
    return reader.finish(20ms);
  }
};

}  // namespace

TEST_CASE_METHOD(fixture, "a stream is timed from its first text on", "[bench]") {
  reader.on_header(200, true);
  reader.on_body(role, 5ms);
  reader.on_body(token("a"), 10ms);
  reader.on_body(token("b").substr(0, 8), 12ms);
  reader.on_body(token("b").substr(8), 14ms);
  reader.on_body(token("c") + token("d"), 20ms);
  reader.on_body(last + usage + done, 25ms);
  const auto o = reader.finish(26ms);
  CHECK(o.error.empty());
  CHECK(o.first_token == 10ms);
  CHECK(o.last_token == 20ms);
  CHECK(o.end == 26ms);
  CHECK(o.token_events == 4);
  CHECK(o.tokens() == 5);
  CHECK(o.prompt_tokens == 7U);
  CHECK(o.cached_tokens == 3);
  REQUIRE(gaps.count() == 3);
  CHECK(gaps.percentile(50) >= 4'000'000);
  CHECK(gaps.percentile(50) < 4'020'000);
  CHECK(gaps.max() == 6'000'000);
  CHECK(gaps.min() == 0);
}

TEST_CASE_METHOD(fixture, "the digest is that of the text, however it was cut into events",
                 "[bench]") {
  const auto digest = [&](const std::string& body) {
    answer_reader fresh{parser, nullptr};
    fresh.on_header(200, true);
    fresh.on_body(body + last + done, 10ms);
    return fresh.finish(20ms).text_digest;
  };
  CHECK(digest(token("ab")) == digest(token("a") + token("b")));
  CHECK(digest(token("ab")) != digest(token("ba")));
  CHECK(digest(token("ab")) != digest(token("abb")));
}

TEST_CASE_METHOD(fixture, "without usage, tokens are counted by events", "[bench]") {
  const auto o = stream(token("a") + token("b") + last + done);
  CHECK(o.error.empty());
  CHECK(o.tokens() == 2);
  CHECK_FALSE(o.prompt_tokens);
}

TEST_CASE_METHOD(fixture, "streams of completions and tool calls bring output, too", "[bench]") {
  const auto o = stream("data: {\"choices\":[{\"text\":\"x\"}]}\n\n"
                        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n"
                        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[]}}]}\n\n" +
                        last + done);
  CHECK(o.error.empty());
  CHECK(o.token_events == 2);
}

TEST_CASE("streams that are not whole", "[bench]") {
  struct row {
    const char* what;
    std::string body;
    std::string error;
    std::string message;
  };
  const row rows[] = {
      {"nothing at all", "", "no_done", "the stream ends without [DONE]"},
      {"no end", token("a") + last, "no_done", "the stream ends without [DONE]"},
      {"no finish reason", token("a") + done, "no_finish_reason",
       "the answer has no finish reason"},
      {"cut inside an event", token("a") + last + "data: {", "broken_stream",
       "the stream ends inside an event"},
      {"an error",
       token("a") + "data: {\"error\":{\"message\":\"gone\",\"code\":\"worker_lost\"}}\n\n" + done,
       "error_event", "worker_lost: gone"},
      {"an error without [DONE]", "data: {\"error\":{\"message\":\"gone\",\"code\":null}}\n\n",
       "error_event", "gone"},
      {"an error of an odd shape", "data: {\"error\":\"gone\"}\n\n" + done, "error_event", "gone"},
      {"not JSON", "data: {\"choices\n\n" + last + done, "bad_stream", "an event is not JSON"},
      {"more after the end", token("a") + last + done + token("b"), "bad_stream",
       "an event after [DONE]"},
  };
  for (const auto& r : rows) {
    INFO(r.what);
    fixture f;
    const auto o = f.stream(r.body);
    CHECK(o.error == r.error);
    CHECK(o.message == r.message);
  }
}

TEST_CASE("answers that are not streamed", "[bench]") {
  struct row {
    const char* what;
    unsigned status;
    std::string body;
    std::string error;
    std::string message;
  };
  const std::string whole =
      R"({"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":9}})";
  const row rows[] = {
      {"whole", 200, whole, "", ""},
      {"refused", 429, R"({"error":{"message":"slow down","code":"rate_limited"}})", "http_429",
       "rate_limited: slow down"},
      {"refused in words", 503, "no upstream", "http_503", "no upstream"},
      {"empty refusal", 500, "", "http_500", ""},
      {"an error with 200", 200, R"({"error":{"message":"oops"}})", "error_body", "oops"},
      {"not JSON", 200, "<html>", "bad_answer", "the body is not JSON"},
      {"nothing", 200, "", "bad_answer", "the body is not JSON"},
      {"no finish reason", 200, R"({"choices":[{"message":{"content":"hello"}}]})",
       "no_finish_reason", "the answer has no finish reason"},
  };
  for (const auto& r : rows) {
    INFO(r.what);
    fixture f;
    const auto o = f.plain(r.status, r.body);
    CHECK(o.error == r.error);
    CHECK(o.message == r.message);
    CHECK_FALSE(o.first_token);
  }
  fixture f;
  CHECK(f.plain(200, whole).tokens() == 9);
}

TEST_CASE_METHOD(fixture, "a refusal that calls itself a stream is a refusal", "[bench]") {
  reader.on_header(503, true);
  reader.on_body("data: x\n\n", 1ms);
  CHECK(reader.finish(2ms).error == "http_503");
}

TEST_CASE_METHOD(fixture, "a failure keeps what had come", "[bench]") {
  reader.on_header(200, true);
  reader.on_body(token("a"), 3ms);
  const auto o = reader.fail("timeout", "too slow", 9ms);
  CHECK(o.error == "timeout");
  CHECK(o.message == "too slow");
  CHECK(o.tokens() == 1);
  CHECK(o.end == 9ms);
}

TEST_CASE_METHOD(fixture, "an endless event ends the reading", "[bench]") {
  reader.on_header(200, true);
  for (int i = 0; i < 64 && !reader.broken(); ++i) reader.on_body(std::string(64 * 1024, 'x'), 1ms);
  REQUIRE(reader.broken());
  CHECK(reader.finish(2ms).error == "bad_stream");
}

TEST_CASE("bodies of requests", "[bench]") {
  planned_request r;
  r.max_tokens = 9;
  body_options o;
  o.model = "m\"x";
  CHECK(
      make_body(o, r, "hi\n") ==
      R"({"model":"m\"x","messages":[{"role":"user","content":"hi\n"}],"max_tokens":9,"stream":true,"stream_options":{"include_usage":true}})");
  o.kind = endpoint::completions;
  o.usage = false;
  o.temperature = 0;
  o.ignore_eos = true;
  o.model = "m";
  const auto extra = parse_extra_body(R"({ "a": [1, {"b": null}], "c\"d": "e" })");
  REQUIRE(extra);
  o.extra = *extra;
  CHECK(
      make_body(o, r, "hi") ==
      R"({"model":"m","prompt":"hi","max_tokens":9,"stream":true,"temperature":0.0,"ignore_eos":true,"a":[1,{"b":null}],"c\"d":"e"})");
  o = {};
  o.stream = false;
  CHECK(make_body(o, r, "").find("stream") == std::string::npos);
  CHECK_FALSE(parse_extra_body("[1]"));
  CHECK_FALSE(parse_extra_body("{"));
}
