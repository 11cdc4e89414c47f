#include "config/parse.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <set>

using namespace troupe::config;

TEST_CASE("every example is valid", "[config]") {
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator{TROUPE_EXAMPLES_DIR}) {
    const auto result = load(entry.path().string());
    for (const auto& p : result.problems) UNSCOPED_INFO(to_string(p));
    REQUIRE(result);
    seen.insert(entry.path().filename().string());
  }
  CHECK(seen.count("quickstart.toml") == 1);
  CHECK(seen.count("both.toml") == 1);
  CHECK(seen.count("simulated.toml") == 1);
  CHECK(seen.count("shards.toml") == 1);
}

TEST_CASE("the quickstart hands over from one host to the other", "[config]") {
  const auto result = load(TROUPE_EXAMPLES_DIR "/quickstart.toml");
  REQUIRE(result);
  const auto on_h0 = engines_on(*result.value, "h0");
  const auto on_h1 = engines_on(*result.value, "h1");
  REQUIRE(on_h0.size() == 1);
  REQUIRE(on_h1.size() == 1);
  CHECK(on_h0[0].name == "prefill/prompts/h0.0");
  CHECK(on_h1[0].name == "decode/answers/h1.0");
  CHECK(result.value->gateways.at(0).port == 8080);
  CHECK(engines_on(*result.value, "h2").empty());
}
