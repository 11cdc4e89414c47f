#include "tests/unit/gpu/transfer/endpoint_fixture.hpp"

#include <catch2/catch.hpp>

#include <thread>

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::transfer::testing;

namespace {

struct pair {
  explicit pair(proximity where)
      : from({.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}),
        to({.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}) {
    auto id = from.transport->connect(to.transport->local_address(), where);
    REQUIRE(id);
    peer = *id;
  }
  endpoint from;
  endpoint to;
  peer_id peer{};
};

constexpr std::size_t mib = 1U << 20U;

}  // namespace

TEST_CASE("the progress thread comes round without anything to do, too") {
  endpoint idle{{.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}};
  const auto before = idle.transport->counters().rounds;
  CHECK(before > 0);
  const auto until = std::chrono::steady_clock::now() + patience_s;
  while (idle.transport->counters().rounds <= before + 3 &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  CHECK(idle.transport->counters().rounds > before + 3);
}

TEST_CASE("a piece arrives bit by bit, over the transport that was asked for") {
  auto where = GENERATE(proximity::same_host, proximity::other_host);
  pair p(where);
  auto size = GENERATE(std::size_t{1}, std::size_t{4096}, 3 * mib + 5);
  auto source = p.from.memory(size);
  auto target = p.to.memory(size + 64);
  fill(source->bytes(), 7);
  fill(target->bytes(), 99);

  p.from.transport->send(p.peer, {.transfer = 5, .piece = 2, .begin = 10, .end = 20},
                         source->bytes(), p.from.seen.note("sent"));
  REQUIRE(p.to.seen.wait([&] { return !p.to.seen.offers.empty(); }));
  auto offer = p.to.seen.offers.front();
  CHECK(offer.size == size);
  CHECK(offer.tag.transfer == 5);
  CHECK(offer.tag.piece == 2);
  CHECK(offer.tag.begin == 10);
  CHECK(offer.tag.end == 20);
  // Rendezvous: nothing has moved, the sender still waits.
  CHECK_FALSE(p.from.seen.wait([&] { return p.from.seen.outcomes.contains("sent"); },
                               std::chrono::milliseconds(20)));

  p.to.transport->receive(offer.number, target->bytes().first(size), p.to.seen.note("received"));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.outcomes.contains("received"); }));
  REQUIRE(p.from.seen.wait([&] { return p.from.seen.outcomes.contains("sent"); }));
  CHECK(p.to.seen.outcomes["received"].ok);
  CHECK(p.to.seen.outcomes["received"].bytes == size);
  CHECK(p.from.seen.outcomes["sent"].ok);
  CHECK(holds(target->bytes().first(size), 7));
  std::vector<std::byte> canary(size + 64);
  fill(canary, 99);
  CHECK(std::memcmp(target->bytes().data() + size, canary.data() + size, 64) == 0);

  CHECK(p.from.transport->counters().sent_bytes == size);
  CHECK(p.to.transport->counters().received_bytes == size);
  auto used = p.from.transport->transports(p.peer);
  INFO("transports: " << used);
  if (where == proximity::other_host) {
    CHECK(used == "tcp");
  } else {
    CHECK(used.find("posix") != std::string::npos);
    CHECK(used.find("tcp") == std::string::npos);
  }
}

TEST_CASE("control messages keep their order, whatever their sizes, and are answered to the peer "
          "that they came from") {
  pair p(GENERATE(proximity::same_host, proximity::other_host));
  std::vector<std::size_t> sizes{10, 2 * mib, 1, 100'000, 0, 40'000, 7};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    REQUIRE(p.from.transport->send_control(
        p.peer, text_bytes(std::string(sizes[i], static_cast<char>('a' + i)))));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.controls.size() == sizes.size(); }));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    CHECK(p.to.seen.controls[i].text == std::string(sizes[i], static_cast<char>('a' + i)));
  auto back = p.to.seen.controls[0].from;
  REQUIRE(p.to.transport->send_control(back, text_bytes("answer")));
  REQUIRE(p.from.seen.wait([&] { return !p.from.seen.controls.empty(); }));
  CHECK(p.from.seen.controls[0].text == "answer");
  CHECK(p.from.seen.controls[0].from == p.peer);
}

TEST_CASE("a declined piece fails at the sender, and the next one passes") {
  pair p(GENERATE(proximity::same_host, proximity::other_host));
  auto source = p.from.memory(2 * mib);
  auto target = p.to.memory(2 * mib);
  fill(source->bytes(), 3);
  p.from.transport->send(p.peer, {.transfer = 1}, source->bytes(), p.from.seen.note("declined"));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.offers.size() == 1; }));
  p.to.transport->decline(p.to.seen.offers[0].number);
  REQUIRE(p.from.seen.wait([&] { return p.from.seen.outcomes.contains("declined"); }));
  CHECK_FALSE(p.from.seen.outcomes["declined"].ok);

  p.from.transport->send(p.peer, {.transfer = 2}, source->bytes(), p.from.seen.note("taken"));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.offers.size() == 2; }));
  p.to.transport->receive(p.to.seen.offers[1].number, target->bytes(), p.to.seen.note("received"));
  REQUIRE(p.from.seen.wait([&] { return p.from.seen.outcomes.contains("taken"); }));
  CHECK(p.from.seen.outcomes["taken"].ok);
  CHECK(holds(target->bytes(), 3));
}

TEST_CASE("a buffer that is too small is refused before anything is written") {
  pair p(GENERATE(proximity::same_host, proximity::other_host));
  auto source = p.from.memory(mib);
  auto target = p.to.memory(mib);
  p.from.transport->send(p.peer, {.transfer = 1}, source->bytes(), p.from.seen.note("sent"));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.offers.size() == 1; }));
  p.to.transport->receive(p.to.seen.offers[0].number, target->bytes().first(mib - 1),
                          p.to.seen.note("received"));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.outcomes.contains("received"); }));
  CHECK(p.to.seen.outcomes["received"].why.code == "truncated");
  REQUIRE(p.from.seen.wait([&] { return p.from.seen.outcomes.contains("sent"); }));
  CHECK_FALSE(p.from.seen.outcomes["sent"].ok);
}

TEST_CASE("disconnecting ends what is under way and tells the other side") {
  pair p(GENERATE(proximity::same_host, proximity::other_host));
  REQUIRE(p.from.transport->send_control(p.peer, text_bytes("hello")));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.controls.size() == 1; }));
  CHECK(p.to.transport->peers_at(p.from.transport->local_address()).size() == 1);
  p.from.transport->disconnect(p.peer, false);
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.losses.size() == 1; }));
  auto refused = p.from.transport->send_control(p.peer, text_bytes("late"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "peer_failed");
  // Known until UCX has closed it, too.
  CHECK(p.to.seen.wait(
      [&] { return p.to.transport->peers_at(p.from.transport->local_address()).empty(); }));

  // And a new connection works.
  auto again = p.from.transport->connect(p.to.transport->local_address(), proximity::other_host);
  REQUIRE(again);
  CHECK(*again != p.peer);
  REQUIRE(p.from.transport->send_control(*again, text_bytes("again")));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.controls.size() == 2; }));
}

TEST_CASE("connecting twice gives the same connection; malformed addresses are refused") {
  pair p(proximity::other_host);
  auto address = p.to.transport->local_address();
  auto again = p.from.transport->connect(address, proximity::other_host);
  REQUIRE(again);
  CHECK(*again == p.peer);
  for (std::size_t keep :
       {std::size_t{0}, std::size_t{3}, std::size_t{11}, std::size_t{20}, address.size() - 1}) {
    auto refused = p.from.transport->connect(std::span(address).first(keep), proximity::other_host);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == "peer_unreachable");
  }
  // Standing before it ends: UCX 1.13 doesn't survive it when a worker goes while another connects
  // to it.
  REQUIRE(p.from.transport->send_control(p.peer, text_bytes("x")));
  REQUIRE(p.to.seen.wait([&] { return !p.to.seen.controls.empty(); }));
  address.push_back(std::byte{0});
  CHECK_FALSE(p.from.transport->connect(address, proximity::other_host));
}

TEST_CASE("a connection that was given up is not handed out again") {
  // How it can fail: the progress thread has not come round since, and it looks whole.
  pair p(proximity::same_host);
  const auto address = p.to.transport->local_address();
  auto given_up = p.peer;
  for (int i = 0; i < 20; ++i) {
    p.from.transport->disconnect(given_up, false);
    const auto next = p.from.transport->connect(address, proximity::same_host);
    REQUIRE(next);
    REQUIRE(*next != given_up);
    CHECK_FALSE(p.from.transport->send_control(given_up, std::vector<std::byte>(8)));
    given_up = *next;
  }
  // Standing before it ends, as above.
  REQUIRE(p.from.transport->send_control(given_up, text_bytes("x")));
  REQUIRE(p.to.seen.wait([&] { return !p.to.seen.controls.empty(); }));
}

TEST_CASE("ending a backend ends its operations") {
  auto where = GENERATE(proximity::same_host, proximity::other_host);
  pair p(where);
  auto source = p.from.memory(mib);
  p.from.transport->send(p.peer, {.transfer = 1}, source->bytes(), p.from.seen.note("sent"));
  REQUIRE(p.to.seen.wait([&] { return p.to.seen.offers.size() == 1; }));
  SECTION("the sender's") {
    p.from.transport.reset();
    REQUIRE(p.from.seen.outcomes.contains("sent"));
    CHECK_FALSE(p.from.seen.outcomes["sent"].ok);
  }
  SECTION("the receiver's") {
    p.to.transport.reset();
    REQUIRE(p.from.seen.wait([&] { return p.from.seen.outcomes.contains("sent"); }));
    CHECK_FALSE(p.from.seen.outcomes["sent"].ok);
  }
}
