#include "actors/workers/offload.hpp"

#include <catch2/catch.hpp>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
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

TEST_CASE("the pool tells how its threads do, also when none comes back") {
  const auto until = [](auto true_) {
    for (int i = 0; i < 2'000 && !true_(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    return true_();
  };
  std::promise<void> begun, go, stepped, end;
  offload_pool pool{1};
  CHECK(pool.account().in_hand == 0);
  std::string name(16, '\0');
  std::atomic<bool> loops{false}, over{false};
  REQUIRE(pool.post([&] {
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    begun.set_value();
    go.get_future().wait();
    offload_pool::works_at(700);
    offload_pool::got_on();
    stepped.set_value();
    while (!over) loops = true;
  }));
  begun.get_future().wait();
  REQUIRE(pool.post([&] { end.set_value(); }));
  const auto stands = pool.account();
  CHECK(std::string{name.c_str()} == "tokeniser");
  CHECK(stands.in_hand == 1);
  CHECK(stands.waiting == 1);
  CHECK(stands.sign > 0);
  CHECK(stands.bytes == 0);
  CHECK(pool.account().sign == stands.sign);
  offload_pool::got_on();  // not of the pool: nobody's sign
  CHECK(pool.account().sign == stands.sign);
  go.set_value();
  stepped.get_future().wait();
  const auto on = pool.account();
  CHECK(on.sign > stands.sign);
  CHECK(on.bytes == 700);
  offload_pool::works_at(800);
  CHECK(until([&] { return pool.account().computed >= std::chrono::milliseconds{20}; }));
  CHECK(pool.account().sign == on.sign);
  over = true;
  end.get_future().wait();
  CHECK(until([&] { return pool.account().in_hand == 0; }));
  CHECK(pool.account().waiting == 0);
  CHECK(pool.account().sign > on.sign);
}

TEST_CASE("of several prompts in hand the account is of the one that has stood longest") {
  std::promise<void> go;
  auto goes = go.get_future().share();
  std::promise<void> first, second;
  offload_pool pool{2};
  REQUIRE(pool.post([&, goes] {
    first.set_value();
    goes.wait();
  }));
  first.get_future().wait();
  const auto standing = pool.account().sign;
  REQUIRE(pool.post([&, goes] {
    for (int i = 0; i < 10; ++i) offload_pool::got_on();
    second.set_value();
    goes.wait();
  }));
  second.get_future().wait();
  CHECK(pool.account().in_hand == 2);
  CHECK(pool.account().sign == standing);
  go.set_value();
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
