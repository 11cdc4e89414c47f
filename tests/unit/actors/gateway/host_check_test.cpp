// For whom a request is: names that a page of somebody else's may have brought along.

#include "actors/gateway/gateway.hpp"
#include "actors/gateway/http/host_check.hpp"
#include "tests/support/fake_desk.hpp"
#include "tests/support/http_client.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using gateway::http::check_host;
using gateway::http::known_names;
namespace bhttp = boost::beast::http;

namespace {

bhttp::request_header<> head_for(const std::vector<std::string>& hosts, unsigned version = 11,
                                 const std::string& target = "/v1/models") {
  bhttp::request_header<> head;
  head.method(bhttp::verb::get);
  head.target(target);
  head.version(version);
  for (const auto& h : hosts) head.insert(bhttp::field::host, h);
  return head;
}

/// 0: it goes on.
int status(const std::vector<std::string>& hosts, const known_names& known, unsigned version = 11,
           const std::string& target = "/v1/models") {
  const auto wrong = check_host(head_for(hosts, version, target), known);
  return wrong ? wrong->status : 0;
}

}  // namespace

TEST_CASE("on loopback, a gateway goes by addresses and localhost only", "[gateway]") {
  for (const std::string at : {"127.0.0.1", "127.0.0.2", "::1"}) {
    const auto known = known_names::of(at, false, {});
    for (const std::string good :
         {"127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "10.1.2.3:80", "localhost",
          "LocalHost:8080", "localhost.", "app.localhost", "localhost:"}) {
      INFO(good);
      CHECK(status({good}, known) == 0);
    }
    for (const std::string other : {"evil.example", "evil.example:8080", "localhost.evil.example",
                                    "notlocalhost", "127.0.0.1.evil.example", "x", "1.2.3"}) {
      INFO(other);
      CHECK(status({other}, known) == 421);
    }
  }
  const auto wrong = check_host(head_for({"evil.example:8080"}), known_names::of("::1", false, {}));
  REQUIRE(wrong);
  CHECK(wrong->code == "host_not_known");
  CHECK(wrong->param == "Host");
  CHECK(wrong->message.find("'evil.example'") != std::string::npos);
  CHECK(wrong->message.find("server_names") != std::string::npos);
}

TEST_CASE("elsewhere a gateway answers to any name, unless it is told its own", "[gateway]") {
  for (const std::string at : {"0.0.0.0", "::", "10.0.0.1"}) {
    CHECK(status({"llm.example.com"}, known_names::of(at, false, {})) == 0);
    const auto known = known_names::of(at, false, {"LLM.example.com", "*.example.org"});
    CHECK(status({"llm.example.com:443"}, known) == 0);
    CHECK(status({"Llm.Example.Com."}, known) == 0);
    CHECK(status({"a.example.org"}, known) == 0);
    CHECK(status({"a.b.example.org"}, known) == 0);
    CHECK(status({"10.0.0.1"}, known) == 0);
    CHECK(status({"localhost"}, known) == 0);
    CHECK(status({"example.org"}, known) == 421);
    CHECK(status({"evilexample.org"}, known) == 421);
    CHECK(status({"llm.example.com.evil.example"}, known) == 421);
  }
  // By TLS, a browser looks for the name in the certificate.
  CHECK(status({"llm.example.com"}, known_names::of("127.0.0.1", true, {})) == 0);
  CHECK(status({"other.example"}, known_names::of("127.0.0.1", true, {"llm.example.com"})) == 421);
  CHECK(status({"anything.example"}, known_names::of("127.0.0.1", false, {"*"})) == 0);
}

TEST_CASE("a request by HTTP/1.1 has exactly one Host header, of its form", "[gateway]") {
  for (const auto& known :
       {known_names::of("127.0.0.1", false, {}), known_names::of("0.0.0.0", false, {})}) {
    CHECK(status({}, known) == 400);
    CHECK(status({}, known, 10) == 0);
    CHECK(status({"localhost", "localhost"}, known) == 400);
    CHECK(status({"localhost", "evil.example"}, known, 10) == 400);
    for (const std::string bad :
         {"", ":80", "a b", "localhost:8x", "localhost:80:80", "user@localhost", "[::1", "[::1]x",
          "[localhost]", "[127.0.0.1]", "a/b", "h\xc3\xa9", "localhost, localhost", "."}) {
      INFO(bad);
      CHECK(status({bad}, known) == 400);
    }
  }
  CHECK(status({"evil.example"}, known_names::of("127.0.0.1", false, {}), 10) == 421);
}

TEST_CASE("a target in absolute form says for whom it is, whatever the header says", "[gateway]") {
  const auto known = known_names::of("127.0.0.1", false, {});
  CHECK(status({"localhost"}, known, 11, "http://evil.example/v1/models") == 421);
  CHECK(status({"evil.example"}, known, 11, "http://localhost:80/v1/models") == 0);
  CHECK(status({"localhost"}, known, 11, "http://user@localhost/") == 400);
  CHECK(status({"localhost"}, known, 11, "http:///v1/models") == 400);
  CHECK(status({"localhost"}, known, 11, "/v1/models?u=http://evil.example/") == 0);
  CHECK(status({}, known, 11, "http://localhost/") == 400);
}

TEST_CASE("a page that had its name resolve to us gets an error and the end", "[gateway]") {
  gateway::gateway_options options;
  options.models = {"words"};
  gateway::http_gateway server{options, std::make_shared<test::fake_desk>()};
  REQUIRE(server.start());
  test::raw_client c{server.local_port()};
  c.send("POST /v1/completions HTTP/1.1\r\nHost: evil.example:8080\r\nContent-Type: "
         "application/json\r\nContent-Length: 2\r\n\r\n{}");
  const auto answer = c.read_all();
  CHECK(test::status_of(answer) == 421);
  CHECK(answer.find("\"host_not_known\"") != std::string::npos);
  CHECK(c.closed());
  test::raw_client bare{server.local_port()};
  bare.send("GET /healthz HTTP/1.1\r\n\r\n");
  CHECK(test::status_of(bare.read_all()) == 400);
  test::raw_client old{server.local_port()};
  old.send("GET /healthz HTTP/1.0\r\n\r\n");
  CHECK(test::status_of(old.read_all()) == 200);
}
