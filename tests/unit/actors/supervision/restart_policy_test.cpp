#include "actors/supervision/restart_policy.hpp"

#include <catch2/catch.hpp>

using namespace troupe::supervision;
using namespace std::chrono_literals;

namespace {

using kind = decision::kind;
constexpr restart_policy::time_point at(std::chrono::milliseconds t) {
  return restart_policy::time_point{} + 1h + t;
}

restart_policy make(strategy s, std::vector<restart_kind> children, restart_limits limits = {}) {
  return restart_policy{s, limits, std::move(children), 7};
}

constexpr auto permanent = restart_kind::permanent;
constexpr auto transient = restart_kind::transient;
constexpr auto temporary = restart_kind::temporary;

}  // namespace

TEST_CASE("each strategy restarts its own set of children") {
  struct row {
    strategy s;
    std::size_t child;
    std::vector<std::size_t> restarted;
  };
  auto r = GENERATE(row{strategy::one_for_one, 0, {0}}, row{strategy::one_for_one, 2, {2}},
                    row{strategy::one_for_all, 1, {0, 1, 2}},
                    row{strategy::rest_for_one, 0, {0, 1, 2}},
                    row{strategy::rest_for_one, 1, {1, 2}}, row{strategy::rest_for_one, 2, {2}});
  auto policy = make(r.s, {permanent, permanent, permanent});
  auto d = policy.decide(r.child, ending::failed, at(0ms));
  CHECK(d.what == kind::restart);
  CHECK(d.children == r.restarted);
}

TEST_CASE("a child's kind and how it ended decide whether it comes back") {
  struct row {
    restart_kind child;
    ending how;
    kind what;
  };
  auto r = GENERATE(
      row{permanent, ending::clean, kind::restart}, row{permanent, ending::failed, kind::restart},
      row{permanent, ending::fatal, kind::escalate}, row{transient, ending::clean, kind::ignore},
      row{transient, ending::failed, kind::restart}, row{transient, ending::fatal, kind::escalate},
      row{temporary, ending::clean, kind::ignore}, row{temporary, ending::failed, kind::ignore},
      row{temporary, ending::fatal, kind::ignore});
  CAPTURE(static_cast<int>(r.child), static_cast<int>(r.how));
  auto policy = make(strategy::one_for_one, {r.child});
  CHECK(policy.decide(0, r.how, at(0ms)).what == r.what);
}

TEST_CASE("more restarts than the intensity within the period escalate") {
  auto policy = make(strategy::one_for_one, {permanent, permanent}, {3, 1000ms, 1ms, 1ms});
  CHECK(policy.decide(0, ending::failed, at(0ms)).what == kind::restart);
  CHECK(policy.decide(1, ending::failed, at(100ms)).what ==
        kind::restart);  // all children share the window
  CHECK(policy.decide(0, ending::failed, at(200ms)).what == kind::restart);
  CHECK(policy.recent(at(200ms)) == 3);

  SECTION("just within the period") {
    CHECK(policy.decide(0, ending::failed, at(999ms)).what == kind::escalate);
  }
  SECTION("the oldest has left the window") {
    CHECK(policy.recent(at(1000ms)) == 2);
    CHECK(policy.decide(0, ending::failed, at(1000ms)).what == kind::restart);
    CHECK(policy.decide(0, ending::failed, at(1050ms)).what == kind::escalate);
  }
}

TEST_CASE("excused ends use up none of the intensity, but the back-off grows with them") {
  auto policy = make(strategy::one_for_one, {permanent}, {2, 60s, 100ms, 1s});
  for (int i = 0; i < 20; ++i) {
    const auto d = policy.decide(0, ending::excused, at(i * 1s));
    CHECK(d.what == kind::restart);
    if (i > 4) CHECK(d.delay >= 500ms);
  }
  CHECK(policy.decide(0, ending::failed, at(20s)).what == kind::restart);
  CHECK(policy.decide(0, ending::failed, at(21s)).what == kind::restart);
  CHECK(policy.decide(0, ending::excused, at(22s)).what == kind::restart);
  CHECK(policy.decide(0, ending::failed, at(23s)).what == kind::escalate);
  auto never = make(strategy::one_for_one, {permanent}, {0, 60s, 100ms, 1s});
  CHECK(never.decide(0, ending::excused, at(0s)).what == kind::escalate);
}

TEST_CASE("ignored ends don't count as restarts") {
  auto policy = make(strategy::one_for_one, {transient, temporary}, {1, 1000ms, 1ms, 1ms});
  for (int i = 0; i < 10; ++i) {
    CHECK(policy.decide(0, ending::clean, at(0ms)).what == kind::ignore);
    CHECK(policy.decide(1, ending::failed, at(0ms)).what == kind::ignore);
  }
  CHECK(policy.decide(0, ending::failed, at(0ms)).what == kind::restart);
}

TEST_CASE("an intensity of 0 never restarts") {
  auto policy = make(strategy::one_for_all, {permanent}, {0, 1000ms, 1ms, 1ms});
  CHECK(policy.decide(0, ending::failed, at(0ms)).what == kind::escalate);
}

TEST_CASE("back-off doubles up to its maximum, spread over the upper half") {
  auto policy = make(strategy::one_for_one, {permanent}, {20, 60s, 200ms, 10s});
  auto full = 200ms;
  for (int i = 0; i < 20; ++i) {
    auto d = policy.decide(0, ending::failed, at(i * 1ms));
    CAPTURE(i, d.delay.count());
    CHECK(d.delay >= full / 2);
    CHECK(d.delay <= full);
    full = std::min<std::chrono::milliseconds>(full * 2, 10s);
  }
}

TEST_CASE("after a quiet period back-off begins anew") {
  auto policy = make(strategy::one_for_one, {permanent}, {20, 1000ms, 200ms, 10s});
  for (int i = 0; i < 6; ++i) (void)policy.decide(0, ending::failed, at(0ms));
  CHECK(policy.decide(0, ending::failed, at(5000ms)).delay <= 200ms);
}

TEST_CASE("the same seed gives the same delays, another gives others") {
  auto delays = [](std::uint64_t seed) {
    restart_policy policy{strategy::one_for_one, {50, 60s, 1000ms, 1'000'000ms}, {permanent}, seed};
    std::vector<std::chrono::milliseconds> out;
    for (int i = 0; i < 10; ++i) out.push_back(policy.decide(0, ending::failed, at(0ms)).delay);
    return out;
  };
  CHECK(delays(1) == delays(1));
  CHECK(delays(1) != delays(2));
}
