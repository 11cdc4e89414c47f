#include "actors/router/load_book.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <memory>
#include <numeric>

using namespace troupe;
using namespace std::chrono_literals;
using router::load_book;

namespace {

constexpr control::key64 half = 1ULL << 63U;

std::shared_ptr<const control::assignment> halves(std::uint64_t generation = 0) {
  return std::make_shared<const control::assignment>(
      control::assignment::make({1, generation}, {"router/0", "router/1"}, {{0, {0}}, {half, {1}}})
          .value());
}
control::shard_load told(const load_book& b, load_book::time_point now) {
  control::shard_load l;
  b.tell(l, now);
  return l;
}

}  // namespace

TEST_CASE("what comes evenly for long is told as it is, and fades when it ends") {
  load_book b{halves()};
  load_book::time_point now{1h};
  CHECK(told(b, now).ranges.empty());
  CHECK(told(b, now).requests_per_second == 0);
  for (int i = 0; i < 100'000; ++i) {
    now += 10ms;
    b.note(i % 4 == 0 ? half + 5 : 5, 0.02, now);
  }
  auto l = told(b, now);
  CHECK(l.goes_by == control::assignment_number{1, 0});
  CHECK(l.requests_per_second == Approx(100).epsilon(0.01));
  REQUIRE(l.ranges.size() == 2);
  CHECK(l.ranges[0].first == 0);
  CHECK(l.ranges[0].last == half - 1);
  CHECK(l.ranges[0].load == Approx(1.5).epsilon(0.01));
  CHECK(l.ranges[1].load == Approx(0.5).epsilon(0.01));
  l = told(b, now + control::load_window);
  CHECK(l.ranges[0].load == Approx(1.5 / 2.718).epsilon(0.01));
  CHECK(told(b, now + 24h).ranges.empty());
  b.note(5, 6, now + 24h);
  CHECK(told(b, now + 24h).ranges.at(0).load == Approx(0.1));
}

TEST_CASE("keys that stand out are told apart, and no others") {
  load_book b{halves()};
  load_book::time_point now{1h};
  for (std::uint64_t i = 0; i < 60'000; ++i) {
    now += 10ms;
    b.note(i % 5 == 0 ? 42 : i * 0x9E37'79B9'7F4A'7C15ULL, 0.01, now);
  }
  const auto l = told(b, now);
  REQUIRE(l.keys.size() == 1);
  CHECK(l.keys[0].key == 42);
  CHECK(l.keys[0].load == Approx(0.2).epsilon(0.05));
}

TEST_CASE("with another assignment the load goes on by its slices") {
  load_book b{halves()};
  const load_book::time_point now{1h};
  for (int i = 0; i < 100; ++i) {
    b.note(static_cast<std::uint64_t>(i) << 57U, 1, now);
    b.note(7, 1, now);
  }
  const auto sum = [&] {
    double s = 0;
    for (const auto& r : told(b, now).ranges) s += r.load;
    return s;
  };
  const auto before = sum();
  b.assign(std::make_shared<const control::assignment>(
      control::assignment::make({1, 4}, {"router/0", "router/1"},
                                {{0, {0}}, {8, {1}}, {half / 2, {0}}, {half, {1}}})
          .value()));
  CHECK(sum() == Approx(before).epsilon(0.01));
  const auto l = told(b, now);
  CHECK(l.goes_by == control::assignment_number{1, 4});
  REQUIRE(l.ranges.size() == 4);
  // The key that stands out is where it is.
  CHECK(l.ranges[0].last == 7);
  CHECK(l.ranges[0].load > before / 3);
  b.note(half / 2, 60, now);
  CHECK(told(b, now).ranges[2].load == Approx(l.ranges[2].load + 1));
}
