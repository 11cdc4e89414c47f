// The gateway through real sockets, in front of a fake desk: well-behaved clients, rude ones, and
// ones that go away.

#include "actors/gateway/gateway.hpp"
#include "tests/support/fake_desk.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/http_client.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;
using test::get;
using test::post;
using test::raw_client;
using test::status_of;

namespace {

struct fixture {
  explicit fixture(std::chrono::microseconds pace = 0us)
      : desk(std::make_shared<test::fake_desk>(pace)) {
    options.limits.prompt_bytes_max = 64 * 1024;
    options.drain_notice = 0ms;
    options.models = {"words", "unborn"};
  }
  gateway::http_gateway& start() {
    server = std::make_unique<gateway::http_gateway>(options, desk);
    const auto started = server->start();
    REQUIRE(started);
    return *server;
  }
  std::uint16_t port() { return server->local_port(); }

  gateway::gateway_options options;
  std::shared_ptr<test::fake_desk> desk;
  std::unique_ptr<gateway::http_gateway> server;
};

std::string chat(const std::string& model, bool stream, const std::string& more = {}) {
  return R"({"model":")" + model + R"(","messages":[{"role":"user","content":"hi"}],"stream":)" +
         (stream ? "true" : "false") + more + "}";
}

std::string ask(const std::string& model, bool stream, const std::string& more = {},
                std::string_view headers = {}) {
  return post("/v1/chat/completions", chat(model, stream, more), headers);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a stream, and then another request on the same connection", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  c.send(ask("words", true, R"(,"max_tokens":3)", "X-Request-Id: my-id\r\n"));
  const auto answer = c.read_until("0\r\n\r\n");
  REQUIRE(status_of(answer) == 200);
  REQUIRE(has(answer, "Transfer-Encoding: chunked"));
  REQUIRE(has(answer, "X-Request-Id: my-id"));
  REQUIRE(has(answer, R"("content":" w2")"));
  REQUIRE(has(answer, "data: [DONE]"));
  c.send(ask("words", false));
  const auto whole = c.read_reply();
  REQUIRE(status_of(whole) == 200);
  REQUIRE(has(whole, R"("content":"w0 w1 w2 w3 w4 w5 w6 w7")"));
  REQUIRE(f.desk->last().session.empty());
}

TEST_CASE("what the desk gets", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  c.send(ask("words", false, R"(,"n":2,"user":"u","max_tokens":4)",
             "X-Session-Id: s1\r\nX-Request-Timeout-Ms: 1234\r\n"));
  const auto answer = c.read_reply();
  REQUIRE(status_of(answer) == 200);
  REQUIRE(count(answer, R"("finish_reason":"length")") == 2);
  const auto s = f.desk->last();
  REQUIRE(s.model == "words");
  REQUIRE(s.choices == 2);
  REQUIRE(s.max_tokens == 4);
  REQUIRE(s.session == "s1");
  REQUIRE(s.timeout == 1234ms);
  REQUIRE(has(answer, "X-Request-Id: " + s.external_id));
}

TEST_CASE("failures before and after the answer began", "[gateway]") {
  fixture f;
  f.start();
  for (bool stream : {false, true}) {
    raw_client c{f.port()};
    c.send(ask("refuse", stream));
    const auto answer = c.read_reply();
    REQUIRE(status_of(answer) == 429);
    REQUIRE(has(answer, "Retry-After: 2\r\n"));
    REQUIRE(has(answer, R"("code":"over_limit")"));
    c.send(get("/healthz"));  // the connection is still good
    REQUIRE(status_of(c.read_reply()) == 200);
  }
  raw_client c{f.port()};
  c.send(ask("break", true));
  const auto broken = c.read_until("0\r\n\r\n");
  REQUIRE(status_of(broken) == 200);
  REQUIRE(has(broken, R"("content":" w2")"));
  REQUIRE(has(broken, R"(data: {"error":{"message":"The worker is lost.")"));
  REQUIRE_FALSE(has(broken, "[DONE]"));
  c.send(ask("break", false));
  REQUIRE(status_of(c.read_reply()) == 500);
}

TEST_CASE("a request that is lost ends its client, whatever was said before", "[gateway]") {
  fixture f;
  f.start();
  for (bool stream : {false, true}) {
    raw_client c{f.port()};
    c.send(ask("lost", stream, {}, "X-Request-Id: mine\r\n"));
    const auto answer = c.read_reply(5s);
    REQUIRE(status_of(answer) == 503);
    REQUIRE(has(answer, R"("code":"request_lost")"));
    REQUIRE(has(answer, "Retry-After: 1\r\n"));
    REQUIRE(has(answer, "X-Request-Id: mine\r\n"));
    // The connection is still good; the count follows the answer.
    bool counted = false;
    for (int i = 0; i < 500 && !counted; ++i) {
      if (i > 0) std::this_thread::sleep_for(10ms);
      c.send(get("/metrics"));
      counted = has(c.read_reply(), R"(reason="request_lost")");
    }
    REQUIRE(counted);
  }
  raw_client c{f.port()};
  c.send(ask("forgotten", true));
  const auto answer = c.read_until("0\r\n\r\n", 5s);
  REQUIRE(status_of(answer) == 200);
  REQUIRE(has(answer, R"("code":"request_lost")"));
  REQUIRE_FALSE(has(answer, "[DONE]"));
}

TEST_CASE("a late failure of one of several prompts is a plain error of a whole answer, and an "
          "event in a stream",
          "[gateway]") {
  fixture f;
  f.start();
  for (bool stream : {false, true}) {
    raw_client c{f.port()};
    c.send(post("/v1/completions", std::string(R"({"model":"late","prompt":["a","b"],"stream":)") +
                                       (stream ? "true}" : "false}")));
    const auto answer = stream ? c.read_until("0\r\n\r\n") : c.read_reply();
    CHECK(status_of(answer) == (stream ? 200 : 400));
    CHECK(has(answer, R"("code":"context_length_exceeded")"));
    CHECK(has(answer, R"("text":" w1")") == stream);
    CHECK_FALSE(has(answer, "[DONE]"));
  }
}

TEST_CASE("models that are unknown or not ready, and a desk that takes nothing", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  c.send(ask("nobody", true));
  auto answer = c.read_reply();
  REQUIRE(status_of(answer) == 404);
  REQUIRE(has(answer, R"("code":"model_not_found")"));
  for (const auto* name : {"cold", "unborn"}) {
    c.send(ask(name, true));
    answer = c.read_reply();
    REQUIRE(status_of(answer) == 503);
    REQUIRE(has(answer, R"("code":"model_not_ready")"));
    REQUIRE(has(answer, "Retry-After: 1"));
  }
  f.desk->refuse_all({"too_many_requests", "The node has too many open requests."});
  c.send(ask("words", true));
  answer = c.read_reply();
  REQUIRE(status_of(answer) == 503);
  REQUIRE(has(answer, R"("code":"too_many_requests")"));
}

TEST_CASE("routes", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  struct row {
    std::string text;
    int status;
    const char* part;
  };
  const std::vector<row> rows = {
      {get("/healthz"), 200, "ok"},
      {get("/healthz?x=1"), 200, "ok"},
      {get("/readyz"), 200,
       R"({"name":"cold","ready":false,"failed":false,"reason":"its engine is loading"})"},
      {get("/v1/models"), 200, R"({"id":"words","object":"model")"},
      {get("/v1/models/words"), 200, R"({"id":"words","object":"model")"},
      {get("/v1/models/org/words"), 200, R"("id":"org/words")"},
      {get("/v1/models/org%2Fwords"), 200, R"("id":"org/words")"},
      {get("/v1/models/none%"), 404, "model_not_found"},
      {get("/metrics"), 200, "troupe_http_answers_total"},
      {get("/debug/requests/none"), 404, "request_not_found"},
      {get("/"), 404, "unknown_url"},
      {get("/v1/chat/completions"), 405, "Allow: POST"},
      {post("/v1/models", "{}"), 405, "Allow: GET"},
      {"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 204, "Allow: POST, OPTIONS"},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
       "text/plain\r\nContent-Length: "
       "2\r\n\r\n{}",
       415, "Content-Type"},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415,
       "Content-Type"},
      {post("/v1/completions", "{}", "Content-Encoding: gzip\r\n"), 415, "Content-Encoding"},
      {post("/v1/completions", "{}", "X-Request-Timeout-Ms: soon\r\n"), 400,
       "X-Request-Timeout-Ms"},
      {post("/v1/completions", "{}", "X-Request-Id: " + std::string(129, 'a') + "\r\n"), 400,
       "X-Request-Id"},
      {post("/v1/completions", "{}", "X-Request-Id: a event=forged\r\n"), 400, "X-Request-Id"},
      {get("http://localhost:1/healthz?x"), 200, "ok"},
      {get("http://localhost:1"), 404, "unknown_url"},
      // Never anything but UTF-8, whatever a message repeats.
      {get("/\xff"), 404, "URL: GET /\xEF\xBF\xBD."},
      {get("/" + std::string(198, 'x') + "\u00e9"), 404, "x\xEF\xBF\xBD."},
      {post("/v1/completions",
            R"({"model":"words","prompt":["a","b"],"echo":true,"max_tokens":1})"),
       200, R"({"index":1,"text":"bw0")"},
      {post("/v1/completions",
            R"({"model":"words","prompt":"a\u0000b","echo":true,"max_tokens":1})"),
       200, R"("text":"a\u0000bw0")"},
  };
  for (const auto& r : rows) {
    INFO(r.text);
    c.send(r.text);
    const auto answer = c.read_reply();
    INFO(answer);
    CHECK(status_of(answer) == r.status);
    CHECK(has(answer, r.part));
    CHECK(has(answer, "X-Request-Id: "));
  }
  c.send("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto head = c.read_until("\r\n\r\n");
  REQUIRE(status_of(head) == 200);
  REQUIRE(has(head, "Content-Length: 15"));
  c.send(get("/healthz"));  // no body came after HEAD's answer
  REQUIRE(status_of(c.read_reply()) == 200);
}

TEST_CASE("a request's timeline is served while it runs", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  c.send(ask("hang", true, {}, "X-Request-Id: t-1\r\n"));
  c.read_until("assistant");
  raw_client other{f.port()};
  other.send(get("/debug/requests/t-1"));
  REQUIRE(has(other.read_reply(), R"({"status":"running"})"));
}

TEST_CASE("requests sent ahead are answered in order", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  std::string text;
  for (int i = 1; i <= 20; ++i)
    text += ask("words", false, R"(,"max_tokens":)" + std::to_string(i));
  c.send(text);
  for (int i = 1; i <= 20; ++i)
    REQUIRE(has(c.read_reply(), R"("completion_tokens":)" + std::to_string(i) + ","));
}

TEST_CASE("a request in single bytes, and a chunked body", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  for (char byte : ask("words", false)) REQUIRE(c.send({&byte, 1}));
  REQUIRE(status_of(c.read_reply()) == 200);
  const auto body = chat("words", false);
  char size[16];
  std::snprintf(size, sizeof size, "%zx", body.size());
  c.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n" +
      std::string(size) + "\r\n" + body + "\r\n0\r\n\r\n");
  REQUIRE(status_of(c.read_reply()) == 200);
}

TEST_CASE("HTTP/1.0 gets a stream that ends with the connection", "[gateway]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  auto text = ask("words", true);
  text.replace(text.find("HTTP/1.1"), 8, "HTTP/1.0");
  c.send(text);
  const auto answer = c.read_all();
  REQUIRE(c.closed());
  REQUIRE_FALSE(has(answer, "chunked"));
  REQUIRE(answer.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("Expect: 100-continue", "[gateway]") {
  fixture f;
  f.start();
  const auto body = chat("words", false);
  const auto head = [&](std::size_t size) {
    return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
           "application/json\r\n"
           "Expect: 100-continue\r\nContent-Length: " +
           std::to_string(size) + "\r\n\r\n";
  };
  raw_client c{f.port()};
  c.send(head(body.size()));
  REQUIRE(status_of(c.read_until("\r\n\r\n")) == 100);
  c.send(body);
  REQUIRE(status_of(c.read_reply()) == 200);
  c.send(head(100'000'000));
  REQUIRE(status_of(c.read_reply()) == 413);  // before a byte of it was sent
}

TEST_CASE("what is too large is refused, and the answer arrives", "[gateway]") {
  fixture f;
  f.start();
  {
    raw_client c{f.port()};
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
           "100000000\r\n\r\n");
    const std::string megabyte(1U << 20U, 'x');
    for (int i = 0; i < 100 && c.send(megabyte); ++i) {
    }
    const auto answer = c.read_reply();
    REQUIRE(status_of(answer) == 413);
    REQUIRE(has(answer, "Connection: close"));
  }
  {
    raw_client c{f.port()};  // of unknown length
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
           "chunked\r\n\r\n");
    const auto chunk = "10000\r\n" + std::string(65'536, 'x') + "\r\n";
    for (int i = 0; i < 16; ++i) c.send(chunk);
    REQUIRE(status_of(c.read_reply()) == 413);
  }
  {
    raw_client c{f.port()};
    std::string text = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < 10'000; ++i) text += "X-H" + std::to_string(i) + ": 1\r\n";
    c.send(text + "\r\n");
    REQUIRE(status_of(c.read_reply()) == 431);
  }
  {
    raw_client c{f.port()};
    std::string text = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < 101; ++i) text += "A: 1\r\n";
    c.send(text + "\r\n");
    const auto answer = c.read_reply();
    REQUIRE(status_of(answer) == 431);
    REQUIRE(has(answer, "too_many_headers"));
  }
  {
    raw_client c{f.port()};
    c.send(post("/v1/completions",
                R"({"model":"words","prompt":")" + std::string(65'537, 'x') + "\"}"));
    const auto answer = c.read_reply();
    REQUIRE(status_of(answer) == 413);
    REQUIRE(has(answer, "prompt_too_large"));
  }
}

TEST_CASE("what isn't HTTP gets 400 and the end", "[gateway]") {
  fixture f;
  f.start();
  for (const std::string text :
       {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\x01 HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"}) {
    INFO(text);
    raw_client c{f.port()};
    c.send(text);
    REQUIRE(status_of(c.read_all()) == 400);
    REQUIRE(c.closed());
  }
}

TEST_CASE("a body whose end could be seen elsewhere is refused with all that follows",
          "[gateway]") {
  fixture f;
  f.start();
  const auto inner = get("/healthz");
  for (const std::string head :
       {"Transfer-Encoding: gzip\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n", "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: \r\n"})
    for (const auto& length :
         {std::string{}, "Content-Length: " + std::to_string(inner.size()) + "\r\n"})
      for (const bool length_first : {false, true}) {
        const auto text = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" +
                          (length_first ? length + head : head + length) + "\r\n" + inner;
        INFO(text);
        raw_client c{f.port()};
        c.send(text);
        const auto answer = c.read_all();
        const auto status = status_of(answer);
        CHECK((status == 501 || status == 400));
        CHECK(count(answer, "HTTP/1.1 ") == 1);
        CHECK(c.closed());
      }
  raw_client old{f.port()};
  old.send("POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  CHECK(status_of(old.read_all()) == 501);
}

TEST_CASE("bodies on their way have a limit together, and give back what they had", "[gateway]") {
  fixture f;
  f.options.limits.prompt_bytes_max = 1024 * 1024;
  f.options.limits.held_prompt_bytes_max = 4 * 1024 * 1024;
  f.start();
  const auto begun = [&](std::size_t bytes) {
    auto c = std::make_unique<raw_client>(f.port());
    c->send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: " +
            std::to_string(bytes) + "\r\n\r\n{");
    return c;
  };
  const std::size_t megabyte = 1024 * 1024;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<raw_client>> slow;
    for (int i = 0; i < 4; ++i) slow.push_back(begun(megabyte));
    // Whoever comes next is told so, once those before have been seen.
    std::string answer;
    for (int tries = 0; tries < 500 && !has(answer, "too_many_bodies"); ++tries) {
      const auto next = begun(megabyte);
      next->half_close();
      answer = next->read_all();
    }
    REQUIRE(status_of(answer) == 503);
    REQUIRE(has(answer, "Retry-After: 1"));
    raw_client small{f.port()};
    small.send(get("/healthz"));  // without a body there is always room
    REQUIRE(status_of(small.read_reply()) == 200);
    for (auto& c : slow) c->close();
    bool room = false;
    for (int tries = 0; tries < 500 && !room; ++tries) {
      raw_client again{f.port()};
      again.send(ask("words", false, R"(,"user":")" + std::string(megabyte / 2, 'x') + "\""));
      room = status_of(again.read_reply()) != 503;
      if (!room) std::this_thread::sleep_for(10ms);
    }
    REQUIRE(room);
  }
}

TEST_CASE("slow headers, slow bodies and idle connections end", "[gateway]") {
  fixture f;
  f.options.limits.header_timeout = 100ms;
  f.options.limits.body_timeout = 100ms;
  f.options.limits.idle_timeout = 200ms;
  f.start();
  raw_client silent{f.port()};
  raw_client header{f.port()};
  header.send("GET /healthz HTTP/1.1\r\nHos");
  raw_client body{f.port()};
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{");
  raw_client idle{f.port()};
  idle.send(get("/healthz"));
  REQUIRE(silent.read_all().empty());
  REQUIRE(silent.closed());
  REQUIRE(status_of(header.read_all()) == 408);
  REQUIRE(status_of(body.read_all()) == 408);
  REQUIRE(status_of(idle.read_reply()) == 200);
  REQUIRE(idle.read_all().empty());
  REQUIRE(idle.closed());
}

TEST_CASE("without descriptors, who is idle makes room", "[gateway]") {
  fixture f;
  f.start();
  raw_client warm{f.port()};
  warm.send(get("/healthz"));
  REQUIRE(status_of(warm.read_reply()) == 200);
  // UndefinedBehaviorSanitizer needs a pipe where it meets a type for the first time.
  const boost::system::error_code full{EMFILE, boost::system::system_category()};
  REQUIRE(full == boost::asio::error::no_descriptors);
  REQUIRE(!full.message().empty());
  // Each client here has both ends in this process: two idle ones, and one end of a third.
  const test::few_descriptors few{5};
  raw_client a{f.port()}, b{f.port()};
  for (auto* c : {&a, &b}) {
    c->send(get("/healthz"));
    REQUIRE(status_of(c->read_reply()) == 200);
  }
  raw_client late{f.port()};
  late.send(get("/healthz"));
  CHECK(status_of(late.read_reply()) == 200);
  CHECK(warm.read_all().empty());
  CHECK(warm.closed());
}

TEST_CASE("a client that goes away cancels its request", "[gateway]") {
  fixture f;
  f.start();
  std::size_t cancelled = 0;
  for (const auto* model : {"silent", "hang"})
    for (bool stream : {false, true})
      for (bool half : {false, true}) {
        INFO(model << stream << half);
        auto c = std::make_unique<raw_client>(f.port());
        c->send(ask(model, stream));
        REQUIRE(f.desk->wait_submitted(cancelled + 1, 10s));
        if (half)
          c->half_close();
        else
          c.reset();
        const auto reasons = f.desk->wait_cancelled(++cancelled, 10s);
        REQUIRE(reasons.size() == cancelled);
        REQUIRE(reasons.back() == "client_gone");
      }
}

TEST_CASE("a client that sent ahead and goes away cancels, too", "[gateway]") {
  fixture f;
  f.start();
  {
    raw_client c{f.port()};
    c.send(ask("hang", true) + get("/healthz"));
    REQUIRE(f.desk->wait_submitted(1, 10s));
  }
  REQUIRE(f.desk->wait_cancelled(1, 10s).size() == 1);
}

TEST_CASE("a client that sent too far ahead and goes away cancels, too", "[gateway]") {
  fixture f;
  f.start();
  {
    raw_client c{f.port()};
    c.send(ask("hang", true));
    REQUIRE(f.desk->wait_submitted(1, 10s));
    c.send(std::string(1U << 20U, 'x'));
  }
  const auto reasons = f.desk->wait_cancelled(1, 10s);
  REQUIRE(reasons == std::vector<std::string>{"client_gone"});
}

TEST_CASE("what is sent too far ahead is thrown away: the answer arrives, and is the last",
          "[gateway]") {
  fixture f{5ms};
  f.start();
  raw_client c{f.port()};
  c.send(ask("words", true, R"(,"max_tokens":40)"));
  c.read_until(" w1");
  std::string ahead;
  while (ahead.size() < (2U << 20U))
    ahead += ask("words", false, {}, std::string("X-A: ") + std::string(8'000, 'a') + "\r\n");
  REQUIRE(c.send(ahead));
  const auto rest = c.read_all();
  CHECK(c.closed());
  CHECK(has(rest, " w39"));
  CHECK(rest.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
}

TEST_CASE("what surrounds the chunks of a body is bounded like headers, and refused at once",
          "[gateway]") {
  fixture f;
  f.start();
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  const std::string much(40'000, 'e');
  std::string some_each;
  for (int i = 0; i < 100; ++i) some_each += "1;" + std::string(1'000, 'e') + "\r\nx\r\n";
  std::string trailers = "0\r\n";
  for (int i = 0; i < 101; ++i) trailers += "A: 1\r\n";
  struct row {
    const char* what;
    std::string text;
    const char* code;
  };
  const std::vector<row> rows = {
      {"an extension without an end", "1;" + std::string(200'000, 'e'), "headers_too_large"},
      {"a large extension", "1;" + much + "\r\nx\r\n0\r\n\r\n", "headers_too_large"},
      {"many extensions", some_each, "headers_too_large"},
      {"an extension of the last chunk", "1\r\nx\r\n0;" + much + "\r\n\r\n", "headers_too_large"},
      {"trailers without an end", "1\r\nx\r\n0\r\nA: " + std::string(200'000, 'e'),
       "headers_too_large"},
      {"many trailers", trailers + "\r\n", "too_many_headers"},
  };
  for (const auto& r : rows)
    for (const std::size_t cut : {std::size_t{1}, r.text.size()}) {
      INFO(r.what << " " << cut);
      raw_client c{f.port()};
      c.send(head + r.text.substr(0, cut));
      c.send(r.text.substr(cut));
      const auto answer = c.read_reply(5s);
      CHECK(status_of(answer) == 431);
      CHECK(has(answer, r.code));
    }
  const auto body = chat("words", false);
  raw_client c{f.port()};  // what is small still is none of our business
  c.send(head + fmt::format("{:x};name=\"value\"\r\n{}\r\n0;last\r\nX-Trailer: 1\r\n\r\n",
                            body.size(), body));
  CHECK(status_of(c.read_reply()) == 200);
}

TEST_CASE("a reader that stalls is bounded, then ended with an error", "[gateway]") {
  fixture f;
  f.options.limits.stream_buffer_bytes_max = 64 * 1024;
  f.options.limits.stalled_client_timeout = 200ms;
  f.start();
  raw_client c{f.port(), 4'096};
  // Far more than all buffers on the way.
  c.send(ask("flood", true, R"(,"max_tokens":1000000)"));
  const auto reasons = f.desk->wait_cancelled(1, 20s);
  REQUIRE(reasons == std::vector<std::string>{"client_stalled"});
  const auto rest = c.read_all();
  REQUIRE(c.closed());
  REQUIRE_FALSE(has(rest, "[DONE]"));
  REQUIRE(rest.size() < 8'000'000);
}

TEST_CASE("a reader that pauses for less than the limit loses nothing", "[gateway]") {
  fixture f;
  f.options.limits.stream_buffer_bytes_max = 4U << 20U;
  f.start();
  raw_client c{f.port(), 4'096};
  c.send(ask("flood", true, R"(,"max_tokens":500)"));
  std::this_thread::sleep_for(200ms);
  const auto answer = c.read_until("0\r\n\r\n");
  REQUIRE(has(answer, "[DONE]"));
  REQUIRE(count(answer, R"("content":"xxxx)") == 500);
  REQUIRE(f.desk->wait_cancelled(1, 0ms).empty());
}

TEST_CASE("many connections stream at once", "[gateway]") {
  fixture f{1ms};
  f.start();
  std::vector<std::unique_ptr<raw_client>> clients;
  for (int i = 0; i < 32; ++i) {
    clients.push_back(std::make_unique<raw_client>(f.port()));
    clients.back()->send(ask("words", true, R"(,"max_tokens":50)"));
  }
  for (auto& c : clients) {
    const auto answer = c->read_until("0\r\n\r\n");
    REQUIRE(count(answer, "\"content\":\" w") == 49);
    REQUIRE(has(answer, "[DONE]"));
  }
}

TEST_CASE("at the limit of connections an idle one makes room", "[gateway]") {
  fixture f;
  f.options.limits.connections_max = 2;
  f.start();
  raw_client busy{f.port()};
  busy.send(ask("hang", true));
  busy.read_until("assistant");
  raw_client idle{f.port()};
  idle.send(get("/healthz"));
  REQUIRE(status_of(idle.read_reply()) == 200);
  raw_client next{f.port()};
  next.send(get("/healthz"));
  REQUIRE(status_of(next.read_reply()) == 200);
  REQUIRE(idle.read_all().empty());
  REQUIRE(idle.closed());
}

TEST_CASE("at the limit of connections with none idle, new ones get 503 in time, and room is room "
          "again",
          "[gateway]") {
  fixture f;
  f.options.limits.connections_max = 1;
  f.start();
  auto busy = std::make_unique<raw_client>(f.port());
  busy->send(ask("hang", true));
  busy->read_until("assistant");
  {
    // One that waits is let in when room is made in time.
    raw_client patient{f.port()};
    patient.send(ask("hang", true));
    std::this_thread::sleep_for(100ms);
    busy.reset();
    patient.read_until("assistant", 5s);
    for (int i = 0; i < 3; ++i) {
      raw_client probe{f.port()};
      probe.send(get("/readyz"));
      const auto answer = probe.read_all(5s);
      CHECK(status_of(answer) == 503);
      CHECK(has(answer, R"("code":"too_many_connections")"));
      CHECK(has(answer, "Retry-After: 1\r\n"));
      CHECK(probe.closed());
    }
    raw_client idler{f.port()};  // says nothing, and is told all the same
    CHECK(status_of(idler.read_all(5s)) == 503);
  }
  // Those that were turned away don't count.
  REQUIRE(f.desk->wait_cancelled(2, 5s).size() == 2);
  raw_client next{f.port()};
  next.send(get("/healthz"));
  CHECK(status_of(next.read_reply(5s)) == 200);
}

TEST_CASE("draining: not ready, nothing new, open streams end with an error at the limit",
          "[gateway]") {
  fixture f{20ms};
  f.options.drain_notice = 300ms;
  f.options.limits.drain_timeout = 1'500ms;
  f.start();
  raw_client ending{f.port()};
  ending.send(ask("words", true, R"(,"max_tokens":30)"));
  ending.read_until("assistant");
  raw_client hanging{f.port()};
  hanging.send(ask("hang", true));
  hanging.read_until("assistant");
  raw_client probe{f.port()};
  probe.send(get("/readyz"));
  REQUIRE(status_of(probe.read_reply()) == 200);

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  f.server->drain([&] {
    const std::lock_guard lock{mutex};
    done = true;
    changed.notify_all();
  });
  raw_client late{f.port()};
  late.send(get("/readyz"));
  REQUIRE(status_of(late.read_reply()) == 503);
  raw_client refused{f.port()};
  refused.send(ask("words", false));
  REQUIRE(has(refused.read_reply(), "shutting_down"));

  REQUIRE(has(ending.read_until("0\r\n\r\n"), "[DONE]"));
  const auto cut = hanging.read_all();
  REQUIRE(has(cut, R"("code":"shutting_down")"));
  REQUIRE(hanging.closed());
  REQUIRE(f.desk->wait_cancelled(1, 10s) == std::vector<std::string>{"shutting_down"});
  std::unique_lock lock{mutex};
  REQUIRE(changed.wait_for(lock, 10s, [&] { return done; }));
}

TEST_CASE("stopping in the midst of streams", "[gateway]") {
  fixture f{1ms};
  f.start();
  std::vector<std::unique_ptr<raw_client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<raw_client>(f.port()));
    clients.back()->send(ask("words", true, R"(,"max_tokens":100000)"));
    clients.back()->read_until(" w3");
  }
  f.server->stop();
  f.server.reset();
  for (auto& c : clients) REQUIRE(has(c->read_all(), "shutting_down"));
}

TEST_CASE("addresses that cannot be had are named", "[gateway]") {
  fixture f;
  f.start();
  fixture second;
  auto code = [&](const std::string& address, std::uint16_t port) {
    second.options.address = address;
    second.options.port = port;
    gateway::http_gateway g{second.options, second.desk};
    const auto started = g.start();
    REQUIRE_FALSE(started);
    REQUIRE(has(started.error().message, address));
    return started.error().code;
  };
  REQUIRE(code("127.0.0.1", f.port()) == "port_in_use");
  REQUIRE(code("192.0.2.7", 0) == "address_not_ours");
  REQUIRE(code("localhost:80", 0) == "address_invalid");
}
