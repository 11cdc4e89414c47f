#include "config/values.hpp"

#include "config/nesting.hpp"
#include "config/problem.hpp"
#include "support.hpp"

#include <catch2/catch.hpp>

using namespace troupe::config;
using namespace std::chrono_literals;

TEST_CASE("durations", "[config]") {
  CHECK(parse_duration("500ms") == 500ms);
  CHECK(parse_duration("10s") == 10s);
  CHECK(parse_duration("2m") == 2min);
  CHECK(parse_duration("1h") == 1h);
  CHECK(parse_duration("0s") == 0ms);
  CHECK(parse_duration("10 s") == 10s);
  for (const auto* bad : {"", "10", "s", "1.5s", "-1s", "1s ", " 1s", "1S", "1d", "1s1", "0x1s",
                          "99999999999999999999s", "9223372036854775807h"}) {
    INFO(bad);
    CHECK_FALSE(parse_duration(bad));
  }
  for (const auto value : {0ms, 1ms, 1500ms, 1000ms, 90'000ms, 120'000ms, 3'600'000ms})
    CHECK(parse_duration(format_duration(value)) == value);
  CHECK(format_duration(90s) == "90s");
  CHECK(format_duration(2min) == "2m");
  CHECK(format_duration(1500ms) == "1500ms");
}

TEST_CASE("sizes", "[config]") {
  CHECK(parse_bytes("4096") == 4096U);
  CHECK(parse_bytes("64KiB") == 65536U);
  CHECK(parse_bytes("64 MiB") == 64U << 20U);
  CHECK(parse_bytes("2GiB") == 2ULL << 30U);
  CHECK(parse_bytes("1kB") == 1000U);
  CHECK(parse_bytes("1MB") == 1'000'000U);
  CHECK(parse_bytes("7B") == 7U);
  for (const auto* bad :
       {"", "MiB", "1.5MiB", "-1", "1mib", "1K", "9223372036854775808", "9007199254740993GiB"}) {
    INFO(bad);
    CHECK_FALSE(parse_bytes(bad));
  }
  for (const std::uint64_t value :
       {0ULL, 1ULL, 1023ULL, 1024ULL, 1536ULL, 3ULL << 20U, 5ULL << 30U})
    CHECK(parse_bytes(format_bytes(value)) == value);
  CHECK(format_bytes(3ULL << 20U) == "3MiB");
}

TEST_CASE("addresses", "[config]") {
  for (const auto* good : {"127.0.0.1", "10.1.2.3", "::1", "fe80::1", "0.0.0.0"})
    CHECK(is_address(good));
  for (const auto* bad :
       {"", "localhost", "127.0.0", "127.0.0.1:80", "[::1]", "256.0.0.1", "127.0.0.1 "}) {
    INFO(bad);
    CHECK_FALSE(is_address(bad));
  }
  CHECK_FALSE(is_address(std::string{"127.0.0.1\0x", 11}));
  CHECK(is_loopback("127.8.9.10"));
  CHECK(is_loopback("::1"));
  CHECK_FALSE(is_loopback("128.0.0.1"));
  CHECK_FALSE(is_loopback("::2"));
  CHECK(is_wildcard("0.0.0.0"));
  CHECK(is_wildcard("::"));
  CHECK_FALSE(is_wildcard("127.0.0.1"));
}

TEST_CASE("names", "[config]") {
  for (const auto* good : {"h", "h0", "gpu-01.rack_2", "0"}) CHECK(is_name(good));
  for (const auto* bad : {"", "a/b", "a b", ".a", "a.", "-a", "é", "a:b"}) {
    INFO(bad);
    CHECK_FALSE(is_name(bad));
  }
  CHECK(is_name(std::string(name_chars_max, 'a')));
  CHECK_FALSE(is_name(std::string(name_chars_max + 1, 'a')));
  CHECK(is_model_name("google/gemma-3:270m"));
  CHECK_FALSE(is_model_name("two words"));
  CHECK_FALSE(is_model_name("quo\"te"));
  CHECK_FALSE(is_model_name(""));
}

TEST_CASE("paths are expanded", "[config]") {
  const auto env = testing::fake_environment(
      {{"HOME", "/home/me"}, {"MODELS", "/srv/models"}, {"EMPTY", ""}});
  const auto expanded = [&](std::string_view written) {
    const auto path = expand_path(written, "/etc/troupe", env);
    return path ? *path : "error: " + path.error().message;
  };
  CHECK(expanded("/a/b.gguf") == "/a/b.gguf");
  CHECK(expanded("b.gguf") == "/etc/troupe/b.gguf");
  CHECK(expanded("../b.gguf") == "/etc/b.gguf");
  CHECK(expanded("~/b.gguf") == "/home/me/b.gguf");
  CHECK(expanded("~other/b") == "/etc/troupe/~other/b");
  CHECK(expanded("${MODELS}/b.gguf") == "/srv/models/b.gguf");
  CHECK(expanded("${MODELS}${MODELS}") == "/srv/models/srv/models");
  CHECK(expanded("${NONE:-~/x}/b.gguf") == "/home/me/x/b.gguf");
  CHECK(expanded("${EMPTY:-/d}/b") == "/d/b");
  CHECK(expanded("${EMPTY}/b") == "/b");
  CHECK(expanded("$MODELS/b") == "/etc/troupe/$MODELS/b");
  CHECK(expanded("${NONE}/b").find("NONE is not set") != std::string::npos);
  CHECK(expanded("${MODELS/b").find("closing") != std::string::npos);
  CHECK(expanded("${}").find("error") == 0);
  CHECK(expanded("${EMPTY}").find("empty") != std::string::npos);
  CHECK(expanded(std::string_view{"a\0b", 3}).find("NUL") != std::string::npos);
}

TEST_CASE("the nearest name is what was meant, or nothing", "[config]") {
  const std::vector<std::string> keys = {"slots", "kv_tokens", "hosts", "threads", "role"};
  CHECK(nearest("slot", keys) == "slots");
  CHECK(nearest("kv_token", keys) == "kv_tokens");
  CHECK(nearest("kvtokens", keys) == "kv_tokens");
  CHECK(nearest("thraeds", keys) == "threads");
  CHECK(nearest("rol", keys) == "role");
  CHECK(nearest("colour", keys).empty());
  CHECK(nearest("x", keys).empty());
  CHECK(nearest("", keys).empty());
  CHECK(nearest(std::string(100'000, 's'), keys).empty());
  CHECK(nearest("h0", {"h1"}) == "h1");
}

TEST_CASE("nesting is counted outside strings and comments", "[config]") {
  const std::string deep(nesting_max + 1, '[');
  const auto excessive = [](const std::string& text) {
    return find_excessive_nesting(text).has_value();
  };
  CHECK(excessive("x = " + deep));
  CHECK(excessive("a" + std::string(nesting_max + 1, '.')));
  CHECK_FALSE(excessive("x = " + deep.substr(1)));
  CHECK_FALSE(excessive("# " + deep));
  CHECK_FALSE(excessive("x = '" + deep + "'"));
  CHECK_FALSE(excessive("x = \"a\\\"" + deep + "\""));
  CHECK_FALSE(excessive("x = \"\"\"a\"\n" + deep + "\"\"\""));
  CHECK_FALSE(excessive("x = '''a'\n" + deep + "'''"));
  // The string has ended, so what follows counts.
  CHECK(excessive("x = 'a\\' # \ny = " + deep));
  CHECK(excessive("x = \"\\\\\" # \"\ny = " + deep));
  CHECK(excessive("x = '''a'''''\ny = " + deep));
  CHECK(excessive("x = \"\"\ny = " + deep));
  CHECK(excessive("x = \"\"\"\\\n\"\"\"\ny = " + deep));

  const auto place = find_excessive_nesting("x = \"\"\"\n\\\n\"\"\"\ny = " + deep);
  REQUIRE(place);
  CHECK(place->line == 4);
  CHECK(place->column == 5 + nesting_max);
}

TEST_CASE("names as in DNS", "[config]") {
  for (const auto* good : {"*", "a", "localhost", "llm.example.com", "*.example.com", "LLM-1.x",
                           "a_b", "xn--bcher-kva.example"}) {
    INFO(good);
    CHECK(is_dns_pattern(good));
  }
  for (const auto* bad :
       {"", ".", "*.", "**", "*a", "a.*", "a..b", ".a", "a.", "-a", "a b", "a:80", "http://a",
        "b\xc3\xbc"
        "cher",
        "[::1]"}) {
    INFO(bad);
    CHECK_FALSE(is_dns_pattern(bad));
  }
  CHECK(is_dns_pattern(std::string(253, 'a')));
  CHECK_FALSE(is_dns_pattern(std::string(254, 'a')));
}

TEST_CASE("CPUs and ranges of them", "[config]") {
  using range = std::pair<std::uint32_t, std::uint32_t>;
  CHECK(parse_cpus("0") == range{0, 0});
  CHECK(parse_cpus("4-7") == range{4, 7});
  CHECK(parse_cpus("5-5") == range{5, 5});
  CHECK(parse_cpus("1023") == range{1023, 1023});
  for (const auto* bad : {"", "-", "-1", "1-", "2-1", "a", "1,2", "1024", "0-1024", "0 - 3",
                          "1-2-3", "99999999999"}) {
    INFO(bad);
    CHECK_FALSE(parse_cpus(bad));
  }
}

TEST_CASE("an engine's CPUs are its share of its pool's, in order", "[config]") {
  using cpus = std::vector<std::uint32_t>;
  pool p;
  CHECK(cpus_of(p, 0).empty());
  p.cpus = {"8", "0-2"};
  CHECK(cpus_of(p, 0) == cpus{8, 0, 1, 2});
  p.engines_per_host = 2;
  CHECK(cpus_of(p, 0) == cpus{8, 0});
  CHECK(cpus_of(p, 1) == cpus{1, 2});
  CHECK(cpus_of(p, 7).empty());
}
