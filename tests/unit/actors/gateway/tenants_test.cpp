// Who may do what at a gateway, through real sockets, in front of a fake desk.

#include "actors/gateway/gateway.hpp"
#include "tests/support/fake_desk.hpp"
#include "tests/support/http_client.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>

using namespace troupe;
using test::raw_client;
using test::status_of;

namespace {

// How it can fail: a door that is open without a key, or with one that was taken back; a model that
// a tenant isn't meant to see; a request, or a prompt's hashes, that another tenant can find.

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

struct fixture {
  std::shared_ptr<admission::current_keys> keys = std::make_shared<admission::current_keys>();
  std::shared_ptr<test::fake_desk> desk = std::make_shared<test::fake_desk>();
  gateway::gateway_options options;
  std::unique_ptr<gateway::http_gateway> server;

  fixture() {
    options.chain_key = 1;
    options.keys = keys;
    server = std::make_unique<gateway::http_gateway>(options, desk);
    REQUIRE(server->start());
  }
  static admission::key_ring::entry of(const std::string& tenant, std::vector<std::string> models,
                                       const std::string& key, std::uint64_t chain) {
    return {{tenant, std::move(models), chain, chain},
            {admission::to_hex(admission::hash_key(key))}};
  }
  void tenants() {
    keys->set(std::make_shared<admission::key_ring>(
        std::vector{of("a", {"words", "cold"}, "key-a", 11), of("b", {"org/words"}, "key-b", 12),
                    of("", {}, "key-op", 0)}));
  }
  std::string send(const std::string& text) {
    raw_client c{server->local_port()};
    c.send(text);
    return c.read_reply();
  }
  static std::string bearer(const std::string& key) {
    return key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
  }
  std::string get(const std::string& path, const std::string& key) {
    return send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + bearer(key) + "\r\n");
  }
  std::string ask(const std::string& model, const std::string& more) {
    return send(test::post(
        "/v1/completions",
        R"({"model":")" + model + R"(","prompt":")" + std::string(2'000, 'x') + R"("})", more));
  }
};

}  // namespace

TEST_CASE("without tenants no key is asked for", "[gateway]") {
  fixture f;
  CHECK(status_of(f.ask("words", "")) == 200);
  CHECK(status_of(f.ask("words", "Authorization: Bearer whatever\r\n")) == 200);
  CHECK(f.desk->last().tenant.empty());
  CHECK(f.desk->last().prefix_scope == 0);
  CHECK(status_of(f.get("/metrics", "")) == 200);
  CHECK(status_of(f.get("/debug/workers", "")) == 200);
}

TEST_CASE("with tenants: 401 for no key and a wrong one, 403 for what is not allowed",
          "[gateway]") {
  fixture f;
  f.tenants();
  for (const std::string header :
       {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n",
        "Authorization: key-a\r\n", "Authorization: Basic key-a\r\n", "X-Api-Key: key-a\r\n"}) {
    const auto refused = f.ask("words", header);
    INFO(header << refused);
    CHECK(status_of(refused) == 401);
    CHECK(has(refused, R"("code":"invalid_api_key")"));
    CHECK(has(refused, R"("type":"authentication_error")"));
    CHECK(has(refused, "WWW-Authenticate: Bearer\r\n"));
    CHECK_FALSE(has(refused, "wrong"));
  }
  CHECK_FALSE(f.desk->wait_submitted(1, std::chrono::milliseconds{0}));
  CHECK(status_of(f.get("/v1/models", "")) == 401);
  CHECK(status_of(f.get("/debug/requests/x", "")) == 401);
  CHECK(status_of(f.get("/healthz", "")) == 200);
  CHECK(status_of(f.get("/readyz", "")) == 200);

  const auto forbidden = f.ask("org/words", fixture::bearer("key-a"));
  CHECK(status_of(forbidden) == 403);
  CHECK(has(forbidden, R"("code":"model_not_allowed")"));
  CHECK(has(forbidden, R"("type":"permission_error")"));
  CHECK(status_of(f.ask("nothing", fixture::bearer("key-a"))) == 404);
  CHECK(status_of(f.ask("cold", fixture::bearer("key-a"))) == 503);
  CHECK(status_of(f.ask("words", fixture::bearer("key-op"))) == 403);
  CHECK_FALSE(f.desk->wait_submitted(1, std::chrono::milliseconds{0}));

  CHECK(status_of(f.ask("words", "authorization: bearer  key-a\r\n")) == 200);
  CHECK(f.desk->last().tenant == "a");
}

TEST_CASE("a tenant sees its own models and requests only", "[gateway]") {
  fixture f;
  f.tenants();
  const auto list = f.get("/v1/models", "key-b");
  CHECK(has(list, R"("id":"org/words")"));
  CHECK_FALSE(has(list, R"("id":"words")"));
  CHECK(status_of(f.get("/v1/models/org%2Fwords", "key-b")) == 200);
  CHECK(status_of(f.get("/v1/models/words", "key-b")) == 404);

  REQUIRE(status_of(f.ask("words", fixture::bearer("key-a") + "X-Request-Id: mine\r\n")) == 200);
  CHECK(status_of(f.get("/debug/requests/mine", "key-a")) == 200);
  CHECK(status_of(f.get("/debug/requests/mine", "key-b")) == 404);
  CHECK(status_of(f.get("/debug/requests/mine", "key-op")) == 200);
  for (const std::string path : {"/metrics", "/debug/workers"}) {
    CHECK(status_of(f.get(path, "")) == 401);
    CHECK(status_of(f.get(path, "key-a")) == 403);
    CHECK(status_of(f.get(path, "key-op")) == 200);
  }
}

TEST_CASE("the same prompt of two tenants has nothing in common", "[gateway]") {
  fixture f;
  REQUIRE(status_of(f.ask("words", "")) == 200);
  const auto nobody = f.desk->last();
  f.tenants();
  REQUIRE(status_of(f.ask("words", fixture::bearer("key-a"))) == 200);
  const auto a = f.desk->last();
  REQUIRE(status_of(f.ask("org/words", fixture::bearer("key-b"))) == 200);
  const auto b = f.desk->last();
  REQUIRE(a.prompts[0]->chain.size() >= 3);
  for (const auto hash : a.prompts[0]->chain) {
    for (const auto other : b.prompts[0]->chain) CHECK(hash != other);
    for (const auto other : nobody.prompts[0]->chain) CHECK(hash != other);
  }
  CHECK(a.prefix_scope == 11);
  CHECK(b.prefix_scope == 12);
}

TEST_CASE("keys that are taken out or added hold from the next request on", "[gateway]") {
  fixture f;
  f.tenants();
  CHECK(status_of(f.ask("words", fixture::bearer("key-a"))) == 200);
  f.keys->set(std::make_shared<admission::key_ring>(
      std::vector{fixture::of("a", {"words"}, "key-a2", 11)}));
  CHECK(status_of(f.ask("words", fixture::bearer("key-a"))) == 401);
  CHECK(status_of(f.ask("words", fixture::bearer("key-a2"))) == 200);
}
