#include "actors/request/deadline_queue.hpp"
#include "messages/job_key.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace troupe;
using namespace troupe::request;
using namespace std::chrono_literals;

namespace {

using queue = deadline_queue<msg::request_id>;

constexpr queue::time_point start{1h};
constexpr msg::request_id a{0, 1}, b{0, 2}, c{0, 3};
using ids = std::vector<msg::request_id>;

}  // namespace

TEST_CASE("one timer is set for the earliest deadline, and another only for an earlier one") {
  queue q;
  CHECK(q.add(a, start + 10s) == start + 10s);
  CHECK(q.add(b, start + 20s) == std::nullopt);
  CHECK(q.add(c, start + 5s) == start + 5s);
  CHECK(q.take_late(start + 5s) == ids{c});
  CHECK(q.woken(start + 5s) == std::nullopt);  // the one for 10 s is still set
  CHECK(q.take_late(start + 9s).empty());
  CHECK(q.take_late(start + 10s) == ids{a});
  CHECK(q.woken(start + 10s) == start + 20s);
  CHECK(q.take_late(start + 30s) == ids{b});
  CHECK(q.woken(start + 30s) == std::nullopt);
}

TEST_CASE("a request that ended is not late, and its timer serves the next") {
  queue q;
  q.add(a, start + 10s);
  q.remove(a);
  q.remove(a);
  CHECK(q.add(b, start + 20s) == std::nullopt);  // the timer of before comes first and asks again
  CHECK(q.take_late(start + 10s).empty());
  CHECK(q.woken(start + 10s) == start + 20s);
  CHECK(q.take_late(start + 20s) == ids{b});
}

TEST_CASE("nobody is forgotten, whatever comes and goes", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  queue q;
  std::map<msg::request_id, queue::time_point> open;
  std::multiset<queue::time_point> timers;
  auto now = start;
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    now += std::chrono::milliseconds{random() % 20};
    const msg::request_id id{step, 0};
    const auto deadline = now + std::chrono::milliseconds{random() % 1'000};
    open[id] = deadline;
    if (auto timer = q.add(id, deadline)) timers.insert(*timer);
    if (random() % 2 == 0) {
      auto i = open.begin();
      std::advance(i, random() % open.size());
      q.remove(i->first);
      open.erase(i);
    }
    while (!timers.empty() && *timers.begin() <= now) {
      timers.erase(timers.begin());  // one at a time, as they come to an actor
      for (const auto& late : q.take_late(now)) REQUIRE(open.erase(late) == 1);
      if (auto timer = q.woken(now)) timers.insert(*timer);
    }
    for (const auto& [one, when] : open) REQUIRE(when > now);
    REQUIRE(timers.size() <= 20);
  }
}
