#include "topology/topology.hpp"

#include <catch2/catch.hpp>

using troupe::topology::between;
using troupe::topology::distance;
using troupe::topology::place;

TEST_CASE("distance is the lowest shared level", "[topology]") {
  const place a{"eu", "eu-1", "r1", "h0"};
  struct row {
    const char* what;
    place other;
    distance expected;
  };
  const row rows[] = {
      {"itself", {"eu", "eu-1", "r1", "h0"}, distance::same_host},
      {"another host of the rack", {"eu", "eu-1", "r1", "h1"}, distance::same_rack},
      {"another rack of the zone", {"eu", "eu-1", "r2", "h1"}, distance::same_zone},
      {"another zone of the region", {"eu", "eu-2", "r2", "h1"}, distance::same_region},
      {"the same rack name in another zone", {"eu", "eu-2", "r1", "h1"}, distance::same_region},
      {"the same names in another region", {"us", "eu-1", "r1", "h1"}, distance::remote},
      {"a rack left out", {"eu", "eu-1", "", "h1"}, distance::same_zone},
      {"nothing but a host", {"", "", "", "h1"}, distance::remote},
  };
  for (const auto& r : rows) {
    INFO(r.what);
    CHECK(between(a, r.other) == r.expected);
    CHECK(between(r.other, a) == r.expected);
  }
}

TEST_CASE("levels without names neither join nor separate", "[topology]") {
  CHECK(between({}, {}) == distance::remote);
  CHECK(between({"", "", "", "h0"}, {"", "", "", "h0"}) == distance::same_host);
  CHECK(between({"", "", "", "h0"}, {"", "", "", "h1"}) == distance::remote);
  CHECK(between({"", "", "r1", "h0"}, {"", "", "r1", "h1"}) == distance::same_rack);
  CHECK(between({"", "z", "", "h0"}, {"", "z", "", "h1"}) == distance::same_zone);
}

TEST_CASE("nearer compares as smaller", "[topology]") {
  CHECK(distance::same_host < distance::same_rack);
  CHECK(distance::same_rack < distance::same_zone);
  CHECK(distance::same_zone < distance::same_region);
  CHECK(distance::same_region < distance::remote);
}

TEST_CASE("distances have names", "[topology]") {
  using troupe::topology::to_string;
  CHECK(to_string(distance::same_host) == "same_host");
  CHECK(to_string(distance::remote) == "remote");
}
