// Two processes over UCX: whole transfers, and the death of either side in the middle of one.
#include "tests/unit/gpu/transfer/endpoint_fixture.hpp"
#include "tests/unit/gpu/transfer/peer_process.hpp"

#include <catch2/catch.hpp>

#include <optional>
#include <random>
#include <set>
#include <thread>

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::transfer::testing;

namespace {

constexpr std::size_t mib = 1U << 20U;
constexpr std::size_t piece_size = 8 * mib;
constexpr std::size_t ring = 4;
constexpr auto all = std::chrono::milliseconds(patience_s);

const char* name_of(proximity where) { return where == proximity::same_host ? "local" : "network"; }

/// Takes every offer into the next buffer that is free by the backend's word, and checks that
/// nobody writes into a buffer that was given back.
class careful_receiver final : public events {
 public:
  careful_receiver() {
    auto made = ucx::make_backend(
        {.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}, *this);
    if (!made) throw std::runtime_error(made.error().message);
    transport = *std::move(made);
    memory = *transport->allocate(ring * piece_size, memory_kind::host);
    for (std::size_t i = 0; i < ring; ++i) seal(i);
  }
  ~careful_receiver() override { transport.reset(); }

  void on_control(peer_id, std::span<const std::byte>) override {}
  void on_offer(peer_id from, piece_tag tag, std::size_t size, std::uint64_t offer) override {
    std::unique_lock lock(mutex);
    last_peer = from;
    waiting.push_back({tag, size, offer});
    start();
  }
  void on_peer_lost(peer_id, const error&) override {
    std::lock_guard lock(mutex);
    lost = true;
    changed.notify_all();
  }
  template <class Predicate>
  bool wait(Predicate until, std::chrono::milliseconds at_most = all) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, at_most, until);
  }
  /// All buffers that are ours still hold what we wrote.
  bool sealed() {
    std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < ring; ++i)
      if (!in_use.contains(i) && !holds(buffer(i), 1000 + i)) return false;
    return true;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::unique_ptr<backend> transport;
  std::unique_ptr<region> memory;
  std::set<std::size_t> in_use;
  std::optional<peer_id> last_peer;
  std::size_t good = 0;
  std::size_t bad = 0;
  std::size_t failed = 0;
  bool lost = false;
  bool check = true;

 private:
  struct announced {
    piece_tag tag;
    std::size_t size;
    std::uint64_t offer;
  };

  std::span<std::byte> buffer(std::size_t i) {
    return memory->bytes().subspan(i * piece_size, piece_size);
  }
  void seal(std::size_t i) { fill(buffer(i), 1000 + i); }
  void start() {
    for (std::size_t i = 0; i < ring && !waiting.empty(); ++i) {
      if (in_use.contains(i)) continue;
      auto next = waiting.front();
      waiting.pop_front();
      in_use.insert(i);
      transport->receive(next.offer, buffer(i).first(next.size),
                         [this, i, next](const outcome& how) {
                           std::lock_guard lock(mutex);
                           if (!how.ok)
                             ++failed;
                           else if (!check || holds(buffer(i).first(next.size), next.tag.transfer))
                             ++good;
                           else
                             ++bad;
                           seal(i);
                           in_use.erase(i);
                           changed.notify_all();
                           start();
                         });
    }
  }

  std::deque<announced> waiting;
};

}  // namespace

TEST_CASE("pieces between two processes arrive bit by bit, both ways") {
  auto where = GENERATE(proximity::same_host, proximity::other_host);
  peer_process child;
  careful_receiver here;
  child.tell("connect " + hex(here.transport->local_address()) + " " + name_of(where));
  child.tell("send 12 " + std::to_string(piece_size));
  REQUIRE(here.wait([&] { return here.good + here.bad + here.failed == 12; }));
  CHECK(here.good == 12);
  CHECK(child.until("sent 12", all));

  auto source = *here.transport->allocate(piece_size, memory_kind::host);
  fill(source->bytes(), 5);
  auto peer = here.transport->connect(child.address(), where);
  REQUIRE(peer);
  recorder seen;
  here.transport->send(*peer, {.transfer = 5}, source->bytes(), seen.note("sent"));
  REQUIRE(seen.wait([&] { return seen.outcomes.contains("sent"); }));
  CHECK(seen.outcomes["sent"].ok);
  CHECK(child.until("received 5", all));
  CHECK(here.transport->transports(*peer).find(where == proximity::same_host ? "posix" : "tcp") !=
        std::string::npos);
}

TEST_CASE("the sender is killed in the middle of a rendezvous") {
  auto where = GENERATE(proximity::same_host, proximity::other_host);
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed << ", " << name_of(where));
  std::mt19937 random(seed);
  for (int round = 0; round < 4; ++round) {
    peer_process child;
    careful_receiver here;
    here.check = false;  // faster: more of the time is in the transport
    child.tell("connect " + hex(here.transport->local_address()) + " " + name_of(where));
    child.tell("send 100000 " + std::to_string(piece_size));
    REQUIRE(here.wait([&] { return here.good >= 2; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    child.kill();
    if (where == proximity::same_host) {
      // Nobody tells but we: the launcher has reaped it.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      REQUIRE(here.last_peer);
      here.transport->disconnect(*here.last_peer, true);
    }
    REQUIRE(here.wait([&] { return here.lost && here.in_use.empty(); }));
    CHECK(here.bad == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(here.sealed());

    // The survivor goes on with others.
    peer_process next;
    const auto before = here.wait([] { return true; }) ? here.good : 0;
    next.tell("connect " + hex(here.transport->local_address()) + " " + name_of(where));
    next.tell("send 3 " + std::to_string(piece_size));
    REQUIRE(here.wait([&] { return here.good >= before + 3; }));
  }
}

TEST_CASE("the receiver is killed in the middle of a rendezvous") {
  auto where = GENERATE(proximity::same_host, proximity::other_host);
  const bool taking = GENERATE(true, false);
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed << ", " << name_of(where) << ", taking " << taking);
  std::mt19937 random(seed);
  for (int round = 0; round < 4; ++round) {
    endpoint here({.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"});
    peer_process child;
    if (!taking) {
      child.tell("ignore");
      REQUIRE(child.until("will ignore", all));
    }
    auto peer = here.transport->connect(child.address(), where);
    REQUIRE(peer);
    auto source = here.memory(ring * piece_size);
    fill(source->bytes(), 1);
    std::atomic<std::size_t> ended{0};
    std::atomic<std::size_t> posted{0};
    std::function<void(const outcome&)> again = [&](const outcome& how) {
      ++ended;
      if (how.ok) {
        ++posted;
        here.transport->send(*peer, {.transfer = posted}, source->bytes().first(piece_size), again);
      }
      here.seen.note("one")(how);
    };
    for (std::size_t i = 0; i < ring; ++i) {
      ++posted;
      here.transport->send(*peer, {.transfer = posted},
                           source->bytes().subspan(i * piece_size, piece_size), again);
    }
    if (taking)
      REQUIRE(here.seen.wait([&] { return ended >= 2; }));
    else
      REQUIRE(child.until("offered 4", all));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    child.kill();
    if (where == proximity::same_host) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      CHECK(ended < posted);  // quarantine: nobody has said yet that it's dead
      here.transport->disconnect(*peer, true);
    }
    REQUIRE(here.seen.wait([&] { return ended == posted; }));
    REQUIRE(here.seen.wait([&] { return !here.seen.losses.empty(); }));
    CHECK_FALSE(here.seen.outcomes["one"].ok);

    peer_process next;
    auto other = here.transport->connect(next.address(), where);
    REQUIRE(other);
    here.transport->send(*other, {.transfer = 1}, source->bytes().first(piece_size),
                         here.seen.note("next"));
    REQUIRE(here.seen.wait([&] { return here.seen.outcomes.contains("next"); }));
    CHECK(here.seen.outcomes["next"].ok);
  }
}

TEST_CASE(
    "a peer that hangs keeps its buffers in quarantine over shared memory, until it is dead") {
  endpoint here({.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"});
  peer_process child;
  child.tell("ignore");
  REQUIRE(child.until("will ignore", all));
  auto peer = here.transport->connect(child.address(), proximity::same_host);
  REQUIRE(peer);
  auto source = here.memory(piece_size);
  here.transport->send(*peer, {.transfer = 1}, source->bytes(), here.seen.note("sent"));
  REQUIRE(child.until("offered 1", all));
  child.stop();
  here.transport->disconnect(*peer, false);
  CHECK_FALSE(here.seen.wait([&] { return here.seen.outcomes.contains("sent"); },
                             std::chrono::milliseconds(100)));
  // Who learns of the death only from its address still finds it.
  CHECK(here.transport->peers_at(child.address()) == std::vector{*peer});
  child.kill();
  here.transport->disconnect(*peer, true);
  REQUIRE(here.seen.wait([&] { return here.seen.outcomes.contains("sent"); }));
  CHECK(here.seen.outcomes["sent"].why.code == "peer_failed");
}
