#include "actors/request/holdings.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::request;

namespace {

struct fixture : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<job_book> book = std::make_shared<job_book>();
  caf::actor worker = capture();
  caf::actor router = capture();
  const job_key key{{1, 2}, 3, 4};

  fixture() {
    office->bind("both/p/h.0", 7, worker);
    office->bind("router/0", 0, router);
  }
  std::unique_ptr<held_job> job(std::uint64_t generation = 7) {
    return std::make_unique<held_job>(office, book, msg::address{"requests/h", 0},
                                      msg::address{"both/p/h.0", generation}, key);
  }
};

}  // namespace

TEST_CASE_METHOD(fixture, "a job that is open when it is let go is cancelled at its worker") {
  auto j = job();
  CHECK(j->open());
  CHECK(book->at("both/p/h.0") == std::vector{key});
  j.reset();
  run();
  CHECK(book->size() == 0);
  auto cancels = take_envelopes<msg::CancelJobs>(worker);
  REQUIRE(cancels.size() == 1);
  msg::view<msg::CancelJobs> in{cancels[0].second};
  REQUIRE(in->getKeys().size() == 1);
  CHECK(msg::read(in->getKeys()[0]) == key);
  CHECK(cancels[0].first.from.name == "requests/h");
}

TEST_CASE_METHOD(fixture, "a job that is done leaves the book at once, and nothing is sent") {
  auto j = job();
  j->done();
  CHECK_FALSE(j->open());
  CHECK(book->size() == 0);
  j->done();
  j.reset();
  run();
  CHECK(pending(worker) == 0);
}

TEST_CASE_METHOD(fixture,
                 "a cancellation for an earlier life of a worker does not reach the later one") {
  job(6).reset();
  run();
  CHECK(pending(worker) == 0);
  CHECK(office->counters().stale_generation == 1);
}

TEST_CASE_METHOD(fixture, "a routing lease goes back once, when it is let go") {
  auto r = std::make_unique<held_route>(office, std::make_shared<lease_book>(),
                                        msg::address{"requests/h", 0}, msg::address{"router/0", 0},
                                        99, "h");
  run();
  CHECK(pending(router) == 0);
  r.reset();
  run();
  auto releases = take_envelopes<msg::RouteRelease>(router);
  REQUIRE(releases.size() == 1);
  msg::view<msg::RouteRelease> in{releases[0].second};
  REQUIRE(in->getLeases().size() == 1);
  CHECK(in->getLeases()[0] == 99);
  CHECK(std::string{in->getHost().cStr()} == "h");
}

TEST_CASE("leases of two shards with the same number are two") {
  lease_book book;
  book.add({"router/0", 5});
  book.add({"router/1", 5});
  book.remove({"router/0", 5});
  book.remove({"router/0", 5});
  CHECK(book.all() == std::vector<lease_book::lease>{{"router/1", 5}});
}

TEST_CASE("the book knows jobs by worker and life") {
  job_book book;
  const job_key a{{1, 1}, 0, 1}, b{{1, 1}, 1, 1}, c{{2, 1}, 0, 1};
  book.add({"w", 7}, a);
  book.add({"w", 8}, b);
  book.add({"x", 7}, c);
  book.add({"x", 7}, c);
  CHECK(book.size() == 3);
  CHECK(book.all().size() == 3);
  CHECK(book.at("w").size() == 2);
  CHECK(book.at("w", 8) == std::vector{a});
  CHECK(book.at("nobody").empty());
  book.remove({"w", 7}, b);  // not there
  book.remove({"nobody", 7}, b);
  CHECK(book.size() == 3);
  book.remove({"w", 7}, a);
  book.remove({"w", 8}, b);
  book.remove({"x", 7}, c);
  CHECK(book.size() == 0);
  CHECK(book.all().empty());
}

TEST_CASE("the gate has two limits; who leaves makes room for the next") {
  auto gate = std::make_shared<admission>(2, 100);
  auto a = gate->enter(60);
  REQUIRE(a);
  CHECK(gate->enter(41).error().code == "prompt_memory_full");
  CHECK(gate->open() == 1);
  CHECK(gate->held_bytes() == 60);
  auto b = gate->enter(40);
  REQUIRE(b);
  CHECK(gate->enter(0).error().code == "too_many_requests");
  a->reset();
  CHECK(gate->open() == 1);
  CHECK(gate->held_bytes() == 40);
  CHECK(gate->enter(60));
  CHECK(gate->held_bytes() == 40);
}

TEST_CASE("the gate's limits hold and its counts come back to zero with many threads") {
  constexpr std::uint32_t requests_max = 5;
  constexpr std::uint64_t bytes_max = 350;
  auto gate = std::make_shared<admission>(requests_max, bytes_max);
  std::atomic<std::uint32_t> inside{0}, most{0}, entered{0};
  std::atomic<std::uint64_t> bytes{0}, most_bytes{0};
  auto raise = [](auto& to, auto value) {
    for (auto now = to.load(); value > now && !to.compare_exchange_weak(now, value);) {
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5'000; ++i) {
        auto place = gate->enter(100);
        if (!place) continue;
        ++entered;
        raise(most, ++inside);
        raise(most_bytes, bytes += 100);
        std::this_thread::yield();
        bytes -= 100;
        --inside;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(entered > 0);
  CHECK(most <= requests_max);
  CHECK(most_bytes <= bytes_max);
  CHECK(gate->open() == 0);
  CHECK(gate->held_bytes() == 0);
}
