#include "actors/control/shard_load.hpp"
#include "messages/envelope.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::control;

namespace {

// How it can fail: a figure that is written into another's place or not at all; a peer's nonsense
// that becomes a load.

shard_load through_wire(const shard_load& in) {
  msg::draft<msg::ShardLoad> d;
  write(*d, in);
  const auto e = std::move(d).freeze().value();
  return read(*msg::view<msg::ShardLoad>{e});
}

}  // namespace

TEST_CASE("a shard's account comes as it was sent") {
  shard_load in;
  in.shard = "router/3";
  in.generation = 4;
  in.goes_by = {5, 6};
  in.ranges = {{7, 8, 0.5}, {9, ~key64{0}, 1.5}};
  in.keys = {{7, 0.25}};
  in.requests = 10;
  in.misrouted = 11;
  in.requests_per_second = 1.25;
  in.blocks = 12;
  in.sessions = 13;
  in.leases = 14;
  const auto out = through_wire(in);
  CHECK(out.shard == in.shard);
  CHECK(out.generation == in.generation);
  CHECK(out.goes_by == in.goes_by);
  REQUIRE(out.ranges.size() == 2);
  CHECK(out.ranges[0].first == 7);
  CHECK(out.ranges[0].last == 8);
  CHECK(out.ranges[0].load == 0.5);
  CHECK(out.ranges[1].last == ~key64{0});
  REQUIRE(out.keys.size() == 1);
  CHECK(out.keys[0].key == 7);
  CHECK(out.keys[0].load == 0.25);
  CHECK(out.requests == 10);
  CHECK(out.misrouted == 11);
  CHECK(out.requests_per_second == 1.25);
  CHECK(out.blocks == 12);
  CHECK(out.sessions == 13);
  CHECK(out.leases == 14);
}

TEST_CASE("what is no load counts as none, and what is too much is cut") {
  const auto infinite = std::numeric_limits<double>::infinity();
  shard_load in;
  in.ranges = {{0, 1, -1}, {2, 3, infinite}, {4, 5, std::numeric_limits<double>::quiet_NaN()}};
  in.requests_per_second = -infinite;
  const auto out = through_wire(in);
  for (const auto& r : out.ranges) CHECK(r.load == 0);
  CHECK(out.requests_per_second == 0);

  // Two of these would be infinite together.
  in.ranges = {{0, 9, 1e308}, {0, 9, 1e308}};
  in.keys = {{5, 1e308}, {5, 1e308}};
  in.requests_per_second = 1e308;
  const auto huge = through_wire(in);
  CHECK(huge.requests_per_second == load_told_max);
  const load_map both{huge.ranges, huge.keys};
  CHECK(both.total() == Approx(2 * load_told_max));
  CHECK(std::isfinite(imbalance(assignment::uniform({"router/0", "router/1"}), both)));

  msg::draft<msg::ShardLoad> d;
  d->initKeys(keys_told_max + 1);
  d->initRanges(slices_max + 1);
  const auto e = std::move(d).freeze().value();
  const auto cut = read(*msg::view<msg::ShardLoad>{e});
  CHECK(cut.keys.size() == keys_told_max);
  CHECK(cut.ranges.size() == slices_max);
}
