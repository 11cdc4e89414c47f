#include "actors/directory/refusal_log.hpp"

#include <catch2/catch.hpp>

using troupe::directory::refusal_log;
using verdict = refusal_log::verdict;
using namespace std::chrono_literals;

namespace {
const refusal_log::time_point start{1000h};
}

TEST_CASE("each refusal is logged once in a period") {
  refusal_log log;
  CHECK(log.hear("host b: other cluster", start) == verdict::log);
  CHECK(log.hear("host b: other cluster", start + 15s) == verdict::quiet);
  CHECK(log.hear("host c: other cluster", start + 15s) == verdict::log);
  CHECK(log.hear("host b: other cluster", start + refusal_log::period) == verdict::log);
}

TEST_CASE("a stranger that calls itself something else each time fills neither memory nor log") {
  refusal_log log;
  std::size_t logged = 0, overflows = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto v = log.hear("host " + std::to_string(i), start);
    logged += v == verdict::log;
    overflows += v == verdict::overflow;
  }
  CHECK(logged == refusal_log::refusals_max);
  CHECK(overflows == 1);
  CHECK(log.hear("host b", start + refusal_log::period) == verdict::log);
}

TEST_CASE("a stranger's words are one line, and not long") {
  CHECK(refusal_log::shown("host 'x\n2026 error\t'") == "host 'x 2026 error '");
  CHECK(refusal_log::shown(std::string(1'000'000, 'x')).size() == refusal_log::text_bytes_max);
  refusal_log log;
  CHECK(log.hear(std::string(1'000'000, 'x') + "1", start) == verdict::log);
  CHECK(log.hear(std::string(1'000'000, 'x') + "2", start) == verdict::quiet);
}
