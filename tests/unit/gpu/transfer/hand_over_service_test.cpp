#include "gpu/transfer/hand_over_service.hpp"
#include "gpu/transfer/host_memory/host_fabric.hpp"
#include "gpu/transfer/ucx/ucx_backend.hpp"
#include "tests/unit/gpu/transfer/endpoint_fixture.hpp"

#include <catch2/catch.hpp>

#include <optional>
#include <set>

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::transfer::testing;

namespace {

constexpr std::size_t piece_bytes = 64U << 10U;
const job_key key{{1, 2}, 0, 1};
const transfer_token token{std::byte{9}, std::byte{8}, std::byte{7}};

/// What either side's callbacks said.
struct notes {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> said;
  std::vector<engine::kv_piece> pieces;
  std::optional<offer_of_kv> offer;
  std::optional<transfer_stats> stats;
  std::string failure;

  void say(
      const std::string& what, const std::function<void()>& also = [] {}) {
    std::lock_guard lock(mutex);
    said.push_back(what);
    also();
    changed.notify_all();
  }
  bool has(const std::string& what) {
    std::lock_guard lock(mutex);
    return std::find(said.begin(), said.end(), what) != said.end();
  }
  send_callbacks sender() {
    return {[this](engine::position keep) { say("granted " + std::to_string(keep)); },
            [this](transfer_stats s) { say("done", [&] { stats = s; }); },
            [this](const error& e) { say("failed", [&] { failure = e.code; }); }};
  }
  receive_callbacks receiver() {
    return {[this](offer_of_kv o) { say("open", [&] { offer = std::move(o); }); },
            [this](engine::kv_piece p) { say("piece", [&] { pieces.push_back(std::move(p)); }); },
            [this](transfer_stats s) { say("end", [&] { stats = s; }); },
            [this](const error& e) { say("failed", [&] { failure = e.code; }); }};
  }
};

/// A transport of which a connection can hang: what is said over it comes to nobody, and nobody is
/// told.
class hanging_backend final : public backend {
 public:
  explicit hanging_backend(std::unique_ptr<backend> inner) : inner_(std::move(inner)) {}
  std::set<peer_id> hanging;
  std::vector<peer_id> connected;

  std::string name() const override { return inner_->name(); }
  std::vector<std::byte> local_address() const override { return inner_->local_address(); }
  expected<std::unique_ptr<region>> allocate(std::size_t bytes, memory_kind kind) override {
    return inner_->allocate(bytes, kind);
  }
  expected<peer_id> connect(std::span<const std::byte> address, proximity where) override {
    auto made = inner_->connect(address, where);
    if (made) connected.push_back(*made);
    return made;
  }
  std::vector<peer_id> peers_at(std::span<const std::byte> address) const override {
    return inner_->peers_at(address);
  }
  void disconnect(peer_id peer, bool dead) override { inner_->disconnect(peer, dead); }
  expected<void> send_control(peer_id to, std::span<const std::byte> bytes) override {
    return hanging.count(to) > 0 ? ok : inner_->send_control(to, bytes);
  }
  void send(peer_id to, piece_tag tag, std::span<const std::byte> bytes, completion done) override {
    inner_->send(to, tag, bytes, std::move(done));
  }
  void receive(std::uint64_t offer, std::span<std::byte> into, completion done) override {
    inner_->receive(offer, into, std::move(done));
  }
  void decline(std::uint64_t offer) override { inner_->decline(offer); }
  wire_counters counters() const override { return inner_->counters(); }
  std::string transports(peer_id peer) const override { return inner_->transports(peer); }

 private:
  std::unique_ptr<backend> inner_;
};

/// A prefill and a decode worker, over memory (pumped by hand) or over UCX.
struct workers {
  explicit workers(const std::string& kind, std::size_t buffers = 8,
                   std::uint64_t decode_layout = 5,
                   std::chrono::milliseconds patience = std::chrono::seconds(10))
      : timeout(patience), memory(kind == "memory") {
    where = kind == "tcp" ? proximity::other_host : proximity::same_host;
    prefill = make(buffers, 5);
    decode = make(buffers, decode_layout);
  }
  std::unique_ptr<hand_over_service> make(std::size_t buffers, std::uint64_t layout) {
    hand_over_service::options how;
    how.layout = layout;
    how.piece_bytes = piece_bytes;
    how.buffers = buffers;
    how.timeout = timeout;
    auto made = hand_over_service::start(
        how, [this](events& sink) -> expected<std::unique_ptr<backend>> {
          if (memory && hang) {
            auto made = std::make_unique<hanging_backend>(fabric.join(sink));
            *std::exchange(hang, nullptr) = made.get();
            return std::unique_ptr<backend>{std::move(made)};
          }
          if (memory) return fabric.join(sink);
          return ucx::make_backend(
              {.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}, sink);
        });
    REQUIRE(made);
    return *std::move(made);
  }
  bool until(const std::function<bool()>& there) {
    const auto end = std::chrono::steady_clock::now() + patience_s;
    while (!there()) {
      if (memory ? fabric.pump() == 0 : false) return there();
      if (std::chrono::steady_clock::now() > end) return false;
      if (!memory) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  outgoing job(std::size_t tokens = 101) {
    outgoing what;
    what.key = key;
    what.token = token;
    what.peer = decode->local_address();
    what.where = where;
    for (std::size_t i = 0; i < tokens; ++i)
      what.offer.tokens.push_back(static_cast<engine::token_id>(i * 7));
    what.offer.kv_until = static_cast<engine::position>(tokens - 1);
    what.offer.plan.grammar = "root ::= \"x\"";
    what.offer.plan.stops = {"</s>"};
    return what;
  }
  engine::kv_piece piece(engine::position begin, engine::position end, std::size_t size) {
    engine::kv_piece made;
    made.begin = begin;
    made.end = end;
    made.size = size;
    REQUIRE(
        until([&] { return (made.buffer = prefill->acquire_piece_buffer(key, size)) != nullptr; }));
    fill(made.buffer->bytes().first(size), begin);
    return made;
  }

  std::chrono::milliseconds timeout;
  bool memory;
  hanging_backend** hang = nullptr;  ///< set: told of the next one, which is one
  proximity where;
  host_fabric fabric;
  notes at_prefill;  // before the services: their last callbacks come while they end
  notes at_decode;
  std::unique_ptr<hand_over_service> prefill;
  std::unique_ptr<hand_over_service> decode;
};

}  // namespace

TEST_CASE("a prompt's KV is handed over whole, in order, bit by bit") {
  auto kind = GENERATE(std::string("memory"), std::string("shm"), std::string("tcp"));
  workers w(kind);
  const bool early = GENERATE(false, true);
  if (!early) REQUIRE(w.decode->expect({key, token, 77}, w.at_decode.receiver()));
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  if (early) {
    REQUIRE(w.until([&] { return w.decode->read_gauges().early_opens == 1; }));
    REQUIRE(w.decode->expect({key, token, 77}, w.at_decode.receiver()));
  }
  REQUIRE(w.until([&] { return w.at_decode.has("open"); }));
  CHECK(w.at_decode.offer->tokens == w.job().offer.tokens);
  CHECK(w.at_decode.offer->plan.grammar == "root ::= \"x\"");
  CHECK(w.at_decode.offer->plan.stops == std::vector<std::string>{"</s>"});

  w.decode->grant(key, 20);
  REQUIRE(w.until([&] { return w.at_prefill.has("granted 20"); }));
  // More pieces than buffers and credit: they come only as the receiver lets go of earlier ones.
  std::size_t total = 0;
  std::size_t taken = 0;
  auto take_all = [&] {
    std::vector<engine::kv_piece> now;
    {
      std::lock_guard lock(w.at_decode.mutex);
      now.swap(w.at_decode.pieces);
    }
    for (auto& p : now) {
      CHECK(p.job == 77);
      CHECK(p.begin == 20 + 4 * taken);
      CHECK(holds(p.buffer->bytes().first(p.size), p.begin));
      ++taken;
    }
  };
  for (engine::position at = 20; at < 100; at += 4) {
    const std::size_t size = piece_bytes - at * 100;
    total += size;
    w.prefill->send_piece(key, w.piece(at, at + 4, size));
    if (at % 16 == 0)
      w.until([&] {
        take_all();
        return w.prefill->read_gauges().buffers_free >= 4;
      });
  }
  w.prefill->finish_send(key);
  REQUIRE(w.until([&] {
    take_all();
    return w.at_decode.has("end");
  }));
  take_all();
  CHECK(taken == 20);
  CHECK_FALSE(w.at_prefill.has("done"));
  w.decode->adopted(key);
  REQUIRE(w.until([&] { return w.at_prefill.has("done"); }));
  CHECK(w.at_prefill.stats->bytes == total);
  CHECK(w.at_prefill.stats->pieces == 20);
  CHECK(w.at_prefill.stats->from == 20);
  CHECK(w.at_prefill.stats->to == 100);
  CHECK(w.at_prefill.stats->on_wire <= w.at_prefill.stats->moving);
  if (kind != "memory") CHECK(w.at_prefill.stats->on_wire.count() > 0);
  CHECK(w.decode->read_gauges().wire.received_bytes == total);
  CHECK(w.until([&] {
    return w.prefill->read_gauges().buffers_free == 8 && w.decode->read_gauges().buffers_free == 8;
  }));
  CHECK(w.prefill->read_gauges().sending == 0);
  CHECK(w.decode->read_gauges().receiving == 0);
  if (kind == "tcp") CHECK(w.at_prefill.stats->transports == "tcp");
}

TEST_CASE("nothing is sent when decode holds everything already") {
  workers w("memory");
  REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  w.fabric.pump();
  w.decode->grant(key, 100);
  w.fabric.pump();
  REQUIRE(w.at_prefill.has("granted 100"));
  w.prefill->finish_send(key);
  w.fabric.pump();
  REQUIRE(w.at_decode.has("end"));
  w.decode->adopted(key);
  w.fabric.pump();
  CHECK(w.at_prefill.has("done"));
}

TEST_CASE("a sender that runs ahead is held by credit") {
  workers w("memory", 16);
  REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  w.fabric.pump();
  w.decode->grant(key, 0);
  w.fabric.pump();
  for (engine::position at = 0; at < 10; ++at)
    w.prefill->send_piece(key, w.piece(at, at + 1, piece_bytes));
  w.fabric.pump();
  CHECK(w.at_decode.pieces.size() == 4);
  w.at_decode.pieces.erase(w.at_decode.pieces.begin(), w.at_decode.pieces.begin() + 2);
  w.fabric.pump();
  CHECK(w.at_decode.pieces.size() == 4);  // two more for the two that were let go
  CHECK(w.at_decode.pieces.back().begin == 5);
}

TEST_CASE("while others send, no job takes more than half of the buffers") {
  workers w("memory", 4);
  const job_key other{{1, 3}, 0, 1};
  auto second = w.job();
  second.key = other;
  CHECK(w.prefill->acquire_piece_buffer(key, 10) == nullptr);  // no such job
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  {
    std::vector<std::unique_ptr<engine::piece_buffer>> alone;
    for (int i = 0; i < 4; ++i) {
      alone.push_back(w.prefill->acquire_piece_buffer(key, 10));
      CHECK(alone.back() != nullptr);
    }
  }
  REQUIRE(w.prefill->start_send(std::move(second), w.at_prefill.sender()));
  auto a = w.prefill->acquire_piece_buffer(key, 10);
  auto b = w.prefill->acquire_piece_buffer(key, 10);
  CHECK((a && b));
  CHECK(w.prefill->acquire_piece_buffer(key, 10) == nullptr);
  CHECK(w.prefill->acquire_piece_buffer(other, 10) != nullptr);
  b.reset();
  CHECK(w.prefill->acquire_piece_buffer(key, 10) != nullptr);
}

TEST_CASE("jobs for one decode worker leave buffers for another's") {
  workers w("memory", 4);
  auto swift = w.make(4, 5);
  const job_key other{{1, 3}, 0, 1};
  const job_key third{{1, 4}, 0, 1};
  auto to_swift = w.job();
  to_swift.key = third;
  to_swift.peer = swift->local_address();
  notes at_swift;
  REQUIRE(swift->expect({third, token, 1}, at_swift.receiver()));
  REQUIRE(w.prefill->start_send(to_swift, w.at_prefill.sender()));
  w.fabric.pump();
  REQUIRE(at_swift.has("open"));
  swift->refuse(third, {"kv_exhausted", "it is known now, and has nothing to do"});
  w.fabric.pump();

  auto second = w.job();
  second.key = other;
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  REQUIRE(w.prefill->start_send(std::move(second), w.at_prefill.sender()));
  auto a = w.prefill->acquire_piece_buffer(key, 10);
  auto b = w.prefill->acquire_piece_buffer(other, 10);
  CHECK((a && b));
  CHECK(w.prefill->acquire_piece_buffer(key, 10) == nullptr);
  CHECK(w.prefill->acquire_piece_buffer(other, 10) == nullptr);
  // The transport may hold a buffer for longer than its job lasts.
  w.prefill->cancel(key, {"client_gone", "x"});
  CHECK(w.prefill->acquire_piece_buffer(other, 10) == nullptr);

  REQUIRE(w.prefill->start_send(to_swift, w.at_prefill.sender()));
  CHECK(w.prefill->acquire_piece_buffer(third, 10) != nullptr);
  a.reset();
  CHECK(w.prefill->acquire_piece_buffer(other, 10) != nullptr);
}

TEST_CASE(
    "a job that asks for a buffer in vain fails at the deadline; one that doesn't ask waits") {
  notes at_other;
  workers w("memory", 2, 5, std::chrono::milliseconds(500));
  const job_key other{{1, 3}, 0, 1};
  auto second = w.job();
  second.key = other;
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  auto a = w.prefill->acquire_piece_buffer(key, 10);
  auto b = w.prefill->acquire_piece_buffer(key, 10);
  REQUIRE(w.prefill->start_send(std::move(second), at_other.sender()));
  REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
  REQUIRE(w.decode->expect({other, token, 2}, w.at_decode.receiver()));
  w.fabric.pump();
  w.decode->grant(key, 0);
  w.decode->grant(other, 0);
  w.fabric.pump();
  const auto begun = std::chrono::steady_clock::now();
  CHECK(w.prefill->acquire_piece_buffer(other, 10) == nullptr);
  SECTION("it asks no more") {
    w.prefill->tick(begun + w.timeout);
    w.prefill->tick(begun + 10 * w.timeout);
    CHECK_FALSE(at_other.has("failed"));
  }
  SECTION("it goes on asking") {
    auto now = begun;
    // The last time is taken before the last question, so that no pause of this thread lies
    // between.
    while (now < begun + w.timeout + std::chrono::milliseconds(10)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      now = std::chrono::steady_clock::now();
      CHECK(w.prefill->acquire_piece_buffer(other, 10) == nullptr);
    }
    w.prefill->tick(now);
    CHECK(at_other.has("failed"));
    CHECK(at_other.failure == "no_transfer_buffer");
    CHECK_FALSE(w.at_prefill.has("failed"));
  }
}

TEST_CASE("a hand-over ends on both sides, and all buffers come back") {
  auto kind = GENERATE(std::string("memory"), std::string("shm"), std::string("tcp"));
  workers w(kind);
  REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  REQUIRE(w.until([&] { return w.at_decode.has("open"); }));
  std::string prefill_says;
  std::string decode_says;
  SECTION("refused") {
    w.decode->refuse(key, {"kv_exhausted", "no room"});
    prefill_says = decode_says = "kv_exhausted";
  }
  SECTION("cancelled by prefill before the grant") {
    w.prefill->cancel(key, {"client_gone", "x"});
    prefill_says = decode_says = "client_gone";
  }
  SECTION("in the middle") {
    w.decode->grant(key, 0);
    REQUIRE(w.until([&] { return w.at_prefill.has("granted 0"); }));
    for (engine::position at = 0; at < 7; ++at)
      w.prefill->send_piece(key, w.piece(at, at + 1, piece_bytes));
    REQUIRE(w.until([&] { return w.at_decode.has("piece"); }));
    SECTION("by prefill") {
      w.prefill->cancel(key, {"client_gone", "x"});
      prefill_says = decode_says = "client_gone";
    }
    SECTION("by decode") {
      w.decode->cancel(key, {"lease_lapsed", "x"});
      prefill_says = "any";  // its declined pieces may arrive before the abort
      decode_says = "lease_lapsed";
    }
    SECTION("by deadline") {
      w.prefill->tick(std::chrono::steady_clock::now() + std::chrono::seconds(11));
      prefill_says = decode_says = "transfer_timeout";
    }
    SECTION("by a piece out of turn") {
      w.prefill->send_piece(key, w.piece(9, 10, 10));
      prefill_says = decode_says = "hand_over_protocol";
    }
  }
  REQUIRE(w.until([&] { return w.at_prefill.has("failed") && w.at_decode.has("failed"); }));
  if (prefill_says != "any") CHECK(w.at_prefill.failure == prefill_says);
  CHECK(w.at_decode.failure == decode_says);
  {
    std::lock_guard lock(w.at_decode.mutex);
    w.at_decode.pieces.clear();
  }
  CHECK(w.until([&] {
    return w.prefill->read_gauges().buffers_free == 8 && w.decode->read_gauges().buffers_free == 8;
  }));
  CHECK(w.prefill->read_gauges().sending == 0);
  CHECK(w.decode->read_gauges().receiving == 0);
}

TEST_CASE("another KV layout and a wrong token are refused") {
  SECTION("layout") {
    workers w("memory", 8, 6);
    REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
    REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
    w.fabric.pump();
    CHECK(w.at_prefill.failure == "kv_layout_mismatch");
    CHECK(w.at_decode.failure == "kv_layout_mismatch");
  }
  SECTION("token") {
    workers w("memory");
    auto other = token;
    other[15] = std::byte{1};
    REQUIRE(w.decode->expect({key, other, 1}, w.at_decode.receiver()));
    REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
    w.fabric.pump();
    CHECK_FALSE(w.at_decode.has("open"));
    CHECK(w.prefill->read_gauges().wire.pieces_sent == 0);
    CHECK(w.at_prefill.failure == "wrong_token");
  }
}

TEST_CASE("an open whose decode job never comes is refused at its deadline") {
  workers w("memory");
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  w.fabric.pump();
  w.decode->tick(std::chrono::steady_clock::now() + std::chrono::seconds(9));
  w.fabric.pump();
  CHECK(w.decode->read_gauges().early_opens == 1);
  w.decode->tick(std::chrono::steady_clock::now() + std::chrono::seconds(11));
  w.fabric.pump();
  CHECK(w.decode->read_gauges().early_opens == 0);
  CHECK(w.at_prefill.failure == "unknown_job");
}

TEST_CASE("opens that wait for their jobs may have so many tokens together") {
  workers w("memory");
  for (std::uint32_t n = 1; n <= 3; ++n) {
    auto j = w.job(early_tokens_max / 8 * 3);
    j.key.attempt = n;
    REQUIRE(w.prefill->start_send(std::move(j), w.at_prefill.sender()));
    w.fabric.pump();
  }
  CHECK(w.decode->read_gauges().early_opens == 2);
  CHECK(w.at_prefill.failure == "too_many_hand_overs");
}

TEST_CASE("a worker's end ends its hand-overs") {
  workers w("memory");
  REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  w.fabric.pump();
  w.decode->grant(key, 0);
  w.fabric.pump();
  SECTION("noticed by the transport") {
    w.fabric.kill(w.prefill->local_address(), false);
    w.fabric.pump();
    CHECK(w.at_decode.failure == "peer_failed");
  }
  SECTION("silent: its pieces stay in quarantine until its end is certain") {
    w.fabric.kill(w.decode->local_address(), true);
    w.prefill->send_piece(key, w.piece(0, 1, 100));
    w.fabric.pump();
    CHECK_FALSE(w.at_prefill.has("failed"));
    CHECK(w.prefill->read_gauges().buffers_free == 7);
    w.prefill->worker_gone(w.decode->local_address(), true);
    w.fabric.pump();
    CHECK(w.at_prefill.failure == "peer_failed");
    CHECK(w.prefill->read_gauges().buffers_free == 8);
  }
}

TEST_CASE("a connection over which a hand-over's time goes by without a word is made anew") {
  workers w("memory");
  hanging_backend* transport = nullptr;
  w.hang = &transport;
  w.prefill = w.make(8, 5);
  // On one host a peer that says nothing is its launcher's business.
  const bool far = GENERATE(true, false);
  w.where = far ? proximity::other_host : proximity::same_host;
  const auto attempt = [&](std::uint32_t number) {
    auto what = w.job();
    what.key.attempt = number;
    REQUIRE(w.prefill->start_send(std::move(what), w.at_prefill.sender()));
    w.fabric.pump();
  };
  attempt(1);
  transport->hanging.insert(transport->connected.back());
  attempt(2);
  const bool heard = GENERATE(false, true);
  if (heard) {
    REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
    w.fabric.pump();
    w.decode->grant(key, 0);
    w.fabric.pump();
    REQUIRE(w.at_prefill.has("granted 0"));
  }
  w.prefill->tick(std::chrono::steady_clock::now() + std::chrono::seconds(11));
  w.fabric.pump();
  CHECK(w.at_prefill.failure == "transfer_timeout");
  attempt(3);
  CHECK((transport->connected.at(2) != transport->connected.at(0)) == (far && !heard));
}

TEST_CASE("a piece that fails in transit ends the hand-over on both sides") {
  workers w("memory");
  REQUIRE(w.decode->expect({key, token, 1}, w.at_decode.receiver()));
  REQUIRE(w.prefill->start_send(w.job(), w.at_prefill.sender()));
  w.fabric.pump();
  w.decode->grant(key, 0);
  w.fabric.pump();
  w.fabric.fail_pieces(1);
  w.prefill->send_piece(key, w.piece(0, 50, 1000));
  w.fabric.pump();
  CHECK(w.at_prefill.has("failed"));
  CHECK(w.at_decode.has("failed"));
  CHECK(w.at_decode.pieces.empty());
  CHECK(w.prefill->read_gauges().buffers_free == 8);
  CHECK(w.decode->read_gauges().buffers_free == 8);
}
