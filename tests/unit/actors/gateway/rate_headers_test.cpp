#include "actors/gateway/rate_headers.hpp"

#include <catch2/catch.hpp>

#include <map>

using namespace troupe;
using namespace std::chrono_literals;

// How it can fail: a header that clients don't read, or a number that promises more than there is.

TEST_CASE("times are written as OpenAI writes them", "[gateway]") {
  CHECK(gateway::reset_text(0ms) == "0ms");
  CHECK(gateway::reset_text(250ms) == "250ms");
  CHECK(gateway::reset_text(1'000ms) == "1s");
  CHECK(gateway::reset_text(8'640ms) == "8.64s");
  CHECK(gateway::reset_text(6min) == "6m0s");
  CHECK(gateway::reset_text(90'500ms) == "1m30.5s");
  CHECK(gateway::reset_text(2h + 3min + 4s) == "2h3m4s");
}

TEST_CASE("a tenant's standing in model units, and as requests and tokens", "[gateway]") {
  const auto list = gateway::rate_headers({100, 4.75, 15s});
  const std::map<std::string, std::string> h(list.begin(), list.end());
  CHECK(h.size() == 9);
  CHECK(h.at("x-ratelimit-limit-requests") == "100");
  CHECK(h.at("x-ratelimit-limit-tokens") == "380000");
  CHECK(h.at("x-ratelimit-limit-mu") == "100");
  CHECK(h.at("x-ratelimit-remaining-requests") == "4");
  CHECK(h.at("x-ratelimit-remaining-tokens") == "18050");
  CHECK(h.at("x-ratelimit-remaining-mu") == "4.750");
  CHECK(h.at("x-ratelimit-reset-requests") == "15s");
  CHECK(h.at("x-ratelimit-reset-tokens") == "15s");
  const auto debt = gateway::rate_headers({0.5, -3, 0ms});
  const std::map<std::string, std::string> d(debt.begin(), debt.end());
  CHECK(d.at("x-ratelimit-limit-requests") == "0");
  CHECK(d.at("x-ratelimit-remaining-tokens") == "0");
  CHECK(d.at("x-ratelimit-remaining-mu") == "0.000");
}
