// Connections over UCX that cannot come to stand. A program of its own: UCX 1.13 leaks a little of
// each such connection, and what the other tests leak shall be seen.
#include "gpu/transfer/ucx/address.hpp"
#include "tests/unit/gpu/transfer/endpoint_fixture.hpp"

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

// NOLINTNEXTLINE(bugprone-reserved-identifier): LeakSanitizer's name for it
extern "C" const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() { return "leak:ucs_malloc\nleak:ucs_calloc\n"; }

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::transfer::testing;

namespace {

using namespace std::chrono_literals;

const ucx::options over_tcp{.local_tls = "none", .network_tls = "tcp", .net_devices = ""};

bool shell(const std::string& command) { return std::system(command.c_str()) == 0; }

/// A message from one to the other arrives, over a new connection or the one that stands.
bool reaches(endpoint& from, endpoint& to, const std::string& text) {
  auto peer = from.transport->connect(to.transport->local_address(), proximity::other_host);
  if (!peer || !from.transport->send_control(*peer, text_bytes(text))) return false;
  return to.seen.wait(
      [&] { return !to.seen.controls.empty() && to.seen.controls.back().text == text; });
}

}  // namespace

TEST_CASE("a transport ends in order while a connection of it hangs") {
  const int mute = ::socket(  // listens, and says nothing
      AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  REQUIRE(::bind(mute, reinterpret_cast<sockaddr*>(&where), size) == 0);
  REQUIRE(::listen(mute, 8) == 0);
  REQUIRE(::getsockname(mute, reinterpret_cast<sockaddr*>(&where), &size) == 0);
  ucx::worker_address address{.instance = 7, .lanes = {}};
  const auto bytes = std::as_bytes(std::span(&where, 1));
  address.lanes[static_cast<std::size_t>(ucx::lane_kind::network)] = {bytes.begin(), bytes.end()};
  const bool given_up = GENERATE(false, true);
  {
    endpoint here({.local_tls = "none", .network_tls = "tcp", .net_devices = "lo"});
    auto peer = here.transport->connect(ucx::encode(address), proximity::other_host);
    REQUIRE(peer);
    REQUIRE(here.transport->send_control(*peer, text_bytes("open")));
    CHECK_FALSE(here.seen.wait([&] { return !here.seen.losses.empty(); }, 200ms));
    if (given_up) here.transport->disconnect(*peer, false);
  }
  ::close(mute);
}

/// In namespaces of its own, where `lo` is its to rename; run by the next case.
TEST_CASE("inside: the host's address moves to another device", "[.moved-device]") {
  endpoint listener(over_tcp);
  endpoint connected(over_tcp);
  endpoint unconnected(over_tcp);
  REQUIRE(reaches(connected, listener, "before"));

  REQUIRE(shell("ip link set lo down && ip link set lo name other0 && ip link set other0 up"));
  CHECK(reaches(connected, listener, "over the connection that stands"));
  CHECK(listener.transport->counters().device_changed == 0);

  endpoint newcomer(over_tcp);
  const auto changed = [](endpoint& at) { return at.transport->counters().device_changed > 0; };
  REQUIRE(newcomer.transport->connect(listener.transport->local_address(), proximity::other_host));
  const auto until = std::chrono::steady_clock::now() + patience_s;
  while (!changed(listener) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(10ms);
  CHECK(changed(listener));
  CHECK_FALSE(changed(newcomer));

  REQUIRE(
      unconnected.transport->connect(newcomer.transport->local_address(), proximity::other_host));
  REQUIRE(unconnected.seen.wait([&] { return !unconnected.seen.losses.empty(); }));
  CHECK(changed(unconnected));

  endpoint another(over_tcp);
  CHECK(reaches(another, newcomer, "by two that began afterwards"));
}

TEST_CASE("a transport whose host's address has moved to another device says so") {
  const std::string apart =
      "unshare --net --mount sh -c 'mount -t sysfs sysfs /sys && ip link set lo up && ";
  if (!shell(apart + "true' 2>/dev/null")) {
    WARN("no namespaces here: not tried");
    return;
  }
  CHECK(shell(apart + "exec \"$0\" \"[.moved-device]\"' /proc/" + std::to_string(::getpid()) +
              "/exe"));
}
