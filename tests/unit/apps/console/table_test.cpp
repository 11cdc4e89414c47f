#include "apps/console/table.hpp"

#include <catch2/catch.hpp>

using namespace troupe::apps::console;

TEST_CASE("columns are as wide as they must be, numbers stand to the right") {
  const table t{{"name", "n"}, {{"a", std::int64_t{1}}, {"längst", std::int64_t{100}}, {"", ""}}};
  CHECK(to_text(t) == "name    n\n"
                      "a         1\n"
                      "längst  100\n"
                      "\n");
}

TEST_CASE("what comes from the network does not steer a terminal") {
  CHECK(printable("a\x1b[2J\nb\x7f") == "a?[2J?b?");
  CHECK(to_text({{"x"}, {{"a\x1b"}}}) == "x\na?\n");
}
