#include "actors/control/load_map.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <vector>

using namespace troupe::control;

namespace {
constexpr key64 half = key64{1} << 63U;
constexpr key64 last_key = ~key64{0};
}  // namespace

TEST_CASE("load is even within a range, and adds up where ranges overlap") {
  const std::vector<range_load> ranges{{0, half - 1, 10}, {half, last_key, 20}, {0, last_key, 4}};
  const load_map m{ranges, {}};
  CHECK(m.total() == Approx(34));
  CHECK(m.of(0, half - 1) == Approx(12));
  CHECK(m.of(half, last_key) == Approx(22));
  CHECK(m.of(0, half / 2 - 1) == Approx(6));
  CHECK(m.of(half / 2, half + half / 2 - 1) == Approx(17));
}

TEST_CASE("a key that stands out is where it is, and is not counted twice") {
  const std::vector<range_load> ranges{{0, half - 1, 10}};
  const std::vector<key_load> keys{{77, 9}};
  const load_map m{ranges, keys};
  CHECK(m.total() == Approx(10));
  CHECK(m.of(77, 77) == Approx(9));
  CHECK(m.of(78, half - 1) == Approx(1));
  CHECK(m.of(0, 76) == Approx(0).margin(1e-9));
  REQUIRE(m.keys_in(70, 80).size() == 1);
  CHECK(m.keys_in(78, last_key).empty());
}

TEST_CASE("a key at two replicas is the sum of both, each taken from its own report") {
  const std::vector<range_load> ranges{{0, 99, 10}, {0, 99, 6}};
  const std::vector<key_load> keys{{5, 8}, {5, 6}};
  const load_map m{ranges, keys};
  CHECK(m.total() == Approx(16));
  CHECK(m.of(5, 5) >= 14);
}

TEST_CASE("loads that are none, and ranges that are none, count nothing") {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto inf = std::numeric_limits<double>::infinity();
  const std::vector<range_load> ranges{{0, 9, nan}, {0, 9, -5}, {0, 9, inf}, {9, 3, 7}};
  const std::vector<key_load> keys{{3, nan}, {4, -1}};
  const load_map m{ranges, keys};
  CHECK(m.total() == 0);
  CHECK(load_map{}.of(0, last_key) == 0);
  CHECK(load_map{}.total() == 0);
}

TEST_CASE("imbalance is the hottest over the mean") {
  const auto a = assignment::make({}, {"a", "b"}, {{0, {0}}, {half, {1}}}).value();
  const std::vector<range_load> ranges{{0, half - 1, 30}, {half, last_key, 10}};
  const load_map m{ranges, {}};
  CHECK(imbalance(a, m) == Approx(1.5));
  CHECK(imbalance(a, load_map{}) == 1);
  const std::vector<std::uint16_t> only{1};
  CHECK(imbalance(a, m, only) == Approx(1));
}
