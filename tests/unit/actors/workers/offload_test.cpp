#include "actors/workers/offload.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

using namespace troupe::workers;

TEST_CASE("offloaded tasks all run, on other threads") {
  std::atomic<int> ran{0};
  std::promise<void> all;
  offload_pool pool{3};
  const auto here = std::this_thread::get_id();
  std::atomic<bool> elsewhere{true};
  for (int i = 0; i < 100; ++i)
    REQUIRE(pool.post([&] {
      elsewhere = elsewhere && std::this_thread::get_id() != here;
      if (++ran == 100) all.set_value();
    }));
  all.get_future().wait();
  CHECK(elsewhere);
}

TEST_CASE("above its limit the pool refuses; what waits at its end is dropped") {
  std::promise<void> begun, go;
  auto goes = go.get_future().share();
  std::atomic<int> ran{0};
  std::thread late;
  {
    offload_pool pool{1};
    REQUIRE(pool.post([&, goes] {
      begun.set_value();
      goes.wait();
    }));
    begun.get_future().wait();
    for (std::size_t i = 0; i < offloaded_tasks_max; ++i) REQUIRE(pool.post([&] { ++ran; }));
    CHECK_FALSE(pool.post([] {}));
    // The pool's end empties the queue before it waits for the running task.
    late = std::thread{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      go.set_value();
    }};
  }
  late.join();
  CHECK(ran == 0);
}
