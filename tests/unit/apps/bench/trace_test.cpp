#include "apps/bench/trace.hpp"

#include <catch2/catch.hpp>

#include <sstream>

using namespace troupe::bench;
using namespace std::chrono_literals;

namespace {

troupe::expected<std::vector<trace_entry>> read(const std::string& text) {
  std::istringstream in{text};
  return read_trace(in);
}

}  // namespace

TEST_CASE("CSV with dates", "[bench]") {
  const auto trace = read("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                          "2023-11-16 23:59:59.9000000,4808,10\r\n"
                          "2023-11-17 00:00:00.1500000,3180,8\n"
                          "\n"
                          "2023-11-17 00:01:00,1,2\n");
  REQUIRE(trace);
  REQUIRE(trace->size() == 3);
  CHECK((*trace)[0].at == 0ns);
  CHECK((*trace)[0].prompt_tokens == 4808);
  CHECK((*trace)[0].output_tokens == 10);
  CHECK((*trace)[1].at >= 249'999us);
  CHECK((*trace)[1].at <= 250'001us);
  CHECK((*trace)[2].at >= 60'099ms);
  CHECK((*trace)[2].at <= 60'101ms);
}

TEST_CASE("CSV with seconds, out of order", "[bench]") {
  const auto trace = read("12.5,1,2\n10,3,4\n");
  REQUIRE(trace);
  CHECK((*trace)[0].prompt_tokens == 3);
  CHECK((*trace)[1].at == 2'500ms);
}

TEST_CASE("JSON lines", "[bench]") {
  const auto trace = read("{\"timestamp\": 1000, \"input_length\": 6758, \"output_length\": 500, "
                          "\"hash_ids\": [0, 1, 18446744073709551615]}\n"
                          "{\"timestamp\": 4500, \"input_length\": 10, \"output_length\": 3}\n");
  REQUIRE(trace);
  REQUIRE(trace->size() == 2);
  CHECK((*trace)[0].at == 0ns);
  CHECK((*trace)[0].prompt_tokens == 6758);
  CHECK((*trace)[0].blocks == std::vector<std::uint64_t>{0, 1, ~std::uint64_t{0}});
  CHECK((*trace)[1].at == 3'500ms);
  CHECK((*trace)[1].output_tokens == 3);
}

TEST_CASE("a broken line is named", "[bench]") {
  for (const auto* line :
       {"x,1,2", "2023-13-01 00:00:00,1,2", "2023-01-01 25:00:00,1,2", "1,2", "1,-2,3", "1,2,3,4",
        "1,2,", "nan,1,2", "-1,1,2", "{\"timestamp\": 1}", "{",
        "{\"timestamp\": 1, \"input_length\": -1, \"output_length\": 2}",
        "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 2, \"hash_ids\": [\"x\"]}"}) {
    INFO(line);
    const auto trace = read(std::string{"1,2,3\n"} + line + "\n");
    REQUIRE_FALSE(trace);
    CHECK(trace.error().code == "trace_invalid");
    CHECK(trace.error().message.find("line 2:") == 0);
  }
  const auto endless = read("1,2,3\n" + std::string(trace_line_bytes_max + 1, '1'));
  REQUIRE_FALSE(endless);
  CHECK(endless.error().message.find("line 2: longer than") == 0);
  CHECK_FALSE(read(""));
  CHECK_FALSE(read("TIMESTAMP,ContextTokens,GeneratedTokens\n"));
  CHECK(load_trace("/no/such/file").error().code == "trace_unreadable");
}
