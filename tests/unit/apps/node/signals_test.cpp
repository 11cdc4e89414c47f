#include "apps/node/signals.hpp"

#include <catch2/catch.hpp>

#include <signal.h>
#include <unistd.h>

#include <thread>

using troupe::apps::stop_signals;
using namespace std::chrono_literals;

TEST_CASE("a signal that is pending is seen even without waiting, once") {
  stop_signals s;
  CHECK(s.wait(0ms) == stop_signals::cause::timeout);
  ::kill(::getpid(), SIGTERM);
  CHECK(s.wait(0ms) == stop_signals::cause::signal);
  CHECK(s.wait(0ms) == stop_signals::cause::timeout);
}

TEST_CASE("SIGINT counts, too") {
  stop_signals s;
  ::kill(::getpid(), SIGINT);
  CHECK(s.wait() == stop_signals::cause::signal);
}

TEST_CASE("a terminal that goes away counts where there is one, and nowhere else") {
  {
    stop_signals s{false};
    ::kill(::getpid(), SIGHUP);
    CHECK(s.wait(0ms) == stop_signals::cause::timeout);
  }
  // As libucs leaves it: neither ignored nor an end.
  ::signal(SIGHUP, [](int) {});
  stop_signals s{true};
  ::kill(::getpid(), SIGHUP);
  CHECK(s.wait(0ms) == stop_signals::cause::signal);
}

TEST_CASE("any thread may wake the waiter") {
  stop_signals s;
  std::thread other{[&] { s.wake(); }};
  CHECK(s.wait() == stop_signals::cause::woken);
  other.join();
  CHECK(s.wait(1ms) == stop_signals::cause::timeout);
}
