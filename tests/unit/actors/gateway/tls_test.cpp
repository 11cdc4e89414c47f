// The gateway's HTTPS through real sockets.

#include "actors/gateway/gateway.hpp"
#include "tests/support/certificates.hpp"
#include "tests/support/fake_desk.hpp"
#include "tests/support/http_client.hpp"
#include "tests/support/tls_client.hpp"

#include <catch2/catch.hpp>

#include <openssl/ssl.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;
using test::get;
using test::post;
using test::raw_client;
using test::status_of;
using test::tls_client;

namespace {

struct fixture {
  explicit fixture(std::chrono::microseconds pace = 0us)
      : desk(std::make_shared<test::fake_desk>(pace)) {
    certificates.write_host("h0");
    options.drain_notice = 0ms;
    options.models = {"words"};
  }
  void start() {
    const auto& f = certificates.folder;
    options.credentials = trust::credentials::load({f.host("h0"), f.host_key("h0"), {}},
                                                   trust::tls_use::clients)
                              .value();
    server = std::make_unique<gateway::http_gateway>(options, desk);
    REQUIRE(server->start());
  }
  std::uint16_t port() const { return server->local_port(); }
  tls_client::options trusting() const { return {.ca_file = certificates.folder.ca()}; }

  test::certificates certificates;
  gateway::gateway_options options;
  std::shared_ptr<test::fake_desk> desk;
  std::unique_ptr<gateway::http_gateway> server;
};

std::string ask(const std::string& model, bool stream, const std::string& more = {},
                std::string_view headers = {}) {
  return post("/v1/chat/completions",
              R"({"model":")" + model +
                  R"(","messages":[{"role":"user","content":"hi"}],"stream":)" +
                  (stream ? "true" : "false") + more + "}",
              headers);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("streams and whole answers by TLS, on one connection", "[gateway][tls]") {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    fixture f;
    f.start();
    auto o = f.trusting();
    o.version_max = version;
    tls_client c{f.port(), o};
    CHECK(c.alpn() == "http/1.1");
    c.send(ask("words", true, R"(,"max_tokens":3)"));
    const auto answer = c.read_until("0\r\n\r\n");
    REQUIRE(status_of(answer) == 200);
    REQUIRE(has(answer, R"("content":" w2")"));
    REQUIRE(has(answer, "data: [DONE]"));
    c.send(ask("words", false, {}, "Connection: close\r\n"));
    const auto last = c.read_all();
    REQUIRE(status_of(last) == 200);
    REQUIRE(has(last, "w0 w1 w2 w3 w4 w5 w6 w7"));
    // The end is said, so that nobody can cut an answer short unseen.
    REQUIRE(c.ended_properly());
  }
}

TEST_CASE("a large body, one in single bytes, and Expect: 100-continue by TLS", "[gateway][tls]") {
  fixture f;
  f.start();
  tls_client c{f.port(), f.trusting()};
  c.send(post("/v1/completions",
              R"({"model":"words","max_tokens":1,"prompt":")" + std::string(400'000, 'x') + "\"}"));
  REQUIRE(has(c.read_until("\"usage\""), " 200 "));
  c.read_until("}");
  const auto text = ask("words", true, R"(,"max_tokens":2)", "Expect: 100-continue\r\n");
  const auto head = text.find("\r\n\r\n") + 4;
  for (const char byte : text.substr(0, head)) c.send({&byte, 1});
  REQUIRE(has(c.read_until("100 Continue\r\n\r\n"), "HTTP/1.1 100 Continue"));
  c.send(text.substr(head));
  REQUIRE(has(c.read_until("[DONE]"), "w1"));
}

TEST_CASE("a long answer to a client that reads slowly arrives whole", "[gateway][tls]") {
  fixture f;
  f.options.limits.stream_buffer_bytes_max = 16U << 20U;
  f.start();
  tls_client c{f.port(), f.trusting()};
  c.send(ask("words", true, R"(,"max_tokens":20000)", "Connection: close\r\n"));
  std::this_thread::sleep_for(300ms);  // more gathers than the sockets hold
  const auto answer = c.read_all();
  REQUIRE(has(answer, "\" w19999\""));
  REQUIRE(has(answer, "data: [DONE]"));
}

TEST_CASE("plain HTTP to the TLS port is told so", "[gateway][tls]") {
  fixture f;
  f.start();
  for (const auto& words : {get("/healthz"), ask("words", false)}) {
    raw_client c{f.port()};
    c.send(words);
    const auto answer = c.read_all();
    REQUIRE(status_of(answer) == 400);
    REQUIRE(has(answer, "https_needed"));
    REQUIRE(c.closed());
  }
}

TEST_CASE("what is neither HTTP nor TLS, or speaks another protocol in it, is ended",
          "[gateway][tls]") {
  fixture f;
  f.start();
  raw_client c{f.port()};
  c.send(std::string(4'096, '\x7f'));
  c.read_all();
  REQUIRE(c.closed());
  auto o = f.trusting();
  o.alpn = "h2";
  REQUIRE_THROWS_WITH(tls_client(f.port(), o), Catch::Contains("no application protocol"));
  o = f.trusting();
  o.version_max = TLS1_1_VERSION;
  REQUIRE_THROWS(tls_client(f.port(), o));
  REQUIRE_NOTHROW(tls_client(f.port(), f.trusting()));
}

TEST_CASE("a handshake that doesn't get on is cut, and keeps nobody out", "[gateway][tls]") {
  fixture f;
  f.options.limits.header_timeout = 300ms;
  f.options.limits.connections_max = 4;
  f.start();
  // One that says nothing, and ones that say one byte now and then.
  std::vector<std::unique_ptr<raw_client>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(std::make_unique<raw_client>(f.port()));
  const std::string hello{"\x16\x03\x01\x02\x00\x01", 6};
  std::atomic<bool> over{false};
  std::thread drip{[&] {
    for (std::size_t i = 0; i < hello.size() && !over; ++i, std::this_thread::sleep_for(100ms))
      for (auto& c : slow) c->send(hello.substr(i, 1));
  }};
  // A client that means it gets in at once.
  tls_client c{f.port(), f.trusting()};
  c.send(ask("words", true, R"(,"max_tokens":1)"));
  CHECK(has(c.read_until("[DONE]"), "w0"));
  for (auto& s : slow) {
    s->read_all();
    CHECK(s->closed());
  }
  over = true;
  drip.join();
}

TEST_CASE("a client that goes away without a word, or with one, cancels its request",
          "[gateway][tls]") {
  fixture f;
  f.start();
  {
    tls_client c{f.port(), f.trusting()};
    c.send(ask("hang", true));
    REQUIRE(f.desk->wait_submitted(1, 10s));
  }
  const auto reasons = f.desk->wait_cancelled(1, 10s);
  REQUIRE(reasons == std::vector<std::string>{"client_gone"});
}

TEST_CASE("at the limit of connections, busy ones, a client by TLS is told so", "[gateway][tls]") {
  fixture f;
  f.options.limits.connections_max = 1;
  f.start();
  tls_client busy{f.port(), f.trusting()};
  busy.send(ask("hang", true));
  REQUIRE(f.desk->wait_submitted(1, 10s));
  tls_client late{f.port(), f.trusting()};
  const auto answer = late.read_all();
  REQUIRE(status_of(answer) == 503);
  REQUIRE(has(answer, "too_many_connections"));
}

TEST_CASE("certificates change under load: no request fails, and old connections go on",
          "[gateway][tls]") {
  fixture f{200us};
  f.start();
  tls_client old{f.port(), f.trusting()};
  old.send(ask("words", true, R"(,"max_tokens":1)"));
  old.read_until("0\r\n\r\n");
  std::atomic<bool> over{false};
  std::atomic<int> served{0}, failed{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i)
    clients.emplace_back([&] {
      while (!over) try {
          tls_client c{f.port(), f.trusting()};
          c.send(ask("words", true, R"(,"max_tokens":20)"));
          ++(has(c.read_until("0\r\n\r\n"), "[DONE]") ? served : failed);
        } catch (const std::exception&) {
          ++failed;
        }
    });
  const auto first = old.serial();
  std::string now = first;
  for (int round = 0; round < 2; ++round) {
    // A pair that doesn't fit changes nothing.
    (void)trust::write_pem_file(f.certificates.folder.host_key("h0"),
                                f.certificates.issue("h0").key, true, trust::existing::replace);
    std::this_thread::sleep_for(trust::look_interval + 100ms);
    CHECK(tls_client(f.port(), f.trusting()).serial() == now);
    f.certificates.write_host("h0");
    const auto until = std::chrono::steady_clock::now() + 20s;
    auto next = now;
    while (next == now && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(50ms);
      next = tls_client(f.port(), f.trusting()).serial();
    }
    REQUIRE(next != now);
    now = next;
  }
  over = true;
  for (auto& c : clients) c.join();
  CHECK(failed == 0);
  CHECK(served > 0);
  old.send(ask("words", true, R"(,"max_tokens":1)"));
  CHECK(has(old.read_until("0\r\n\r\n"), "[DONE]"));
  CHECK(old.serial() == first);
}

TEST_CASE("a drain ends TLS connections in order", "[gateway][tls]") {
  fixture f{1ms};
  f.start();
  tls_client c{f.port(), f.trusting()};
  c.send(ask("words", true, R"(,"max_tokens":100)"));
  REQUIRE(f.desk->wait_submitted(1, 10s));
  c.read_until("w0");
  f.server->drain([] {});
  const auto rest = c.read_all();
  CHECK(has(rest, "[DONE]"));
  CHECK(c.ended_properly());
}
