// Two ends of an engine's link over a pair of sockets, step by step.

#include "actors/link/secret_session.hpp"
#include "actors/link/waiting_room.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::link;
using result = session::result;

namespace {

struct pair {
  pair() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0); }
  ~pair() {
    close_node();
    close_engine();
  }
  pair(const pair&) = delete;
  pair& operator=(const pair&) = delete;

  std::unique_ptr<session> make(int fd, bool connects, std::vector<std::uint8_t> secret,
                                std::vector<std::string>& refusals) {
    auto o = std::make_shared<secret_options>();
    o->secret = std::move(secret);
    o->on_refused = [&refusals](const error& why) { refusals.push_back(why.message); };
    return std::make_unique<secret_session>(fd, connects, std::move(o));
  }
  void open(const std::vector<std::uint8_t>& node_secret,
            const std::vector<std::uint8_t>& engine_secret) {
    node = make(fds[0], false, node_secret, node_said);
    engine = make(fds[1], true, engine_secret, engine_said);
  }
  static result read(session& s, std::string& into) {
    char bytes[256];
    std::size_t got = 0;
    const auto r = s.read(bytes, sizeof bytes, got);
    into.append(bytes, got);
    return r;
  }
  static result write(session& s, const std::string& text) {
    std::size_t taken = 0;
    const auto r = s.write(text.data(), text.size(), taken);
    if (r == result::done) CHECK(taken == text.size());
    return r;
  }
  void close_node() {
    node.reset();
    if (fds[0] >= 0) ::close(std::exchange(fds[0], -1));
  }
  void close_engine() {
    engine.reset();
    if (fds[1] >= 0) ::close(std::exchange(fds[1], -1));
  }

  int fds[2] = {-1, -1};
  std::unique_ptr<session> node, engine;
  std::vector<std::string> node_said, engine_said;
};

const std::vector<std::uint8_t> secret(32, 7);

}  // namespace

TEST_CASE("an engine that knows the secret is listened to", "[link][secret]") {
  pair p;
  p.open(secret, secret);
  // The node speaks first, as BASP does, and is not heard yet.
  CHECK(p.write(*p.node, "hello engine") == result::done);
  std::string at_engine, at_node;
  CHECK(p.read(*p.engine, at_engine) == result::again);
  CHECK(at_engine.empty());
  CHECK_FALSE(p.node->proved());
  CHECK(p.write(*p.engine, "hello node") == result::done);
  CHECK(p.read(*p.node, at_node) == result::done);
  CHECK(at_node == "hello node");
  CHECK(p.node->proved());
  CHECK(p.read(*p.engine, at_engine) == result::done);
  CHECK(at_engine == "hello engine");
  CHECK(p.node_said.empty());
  CHECK(p.engine_said.empty());
}

TEST_CASE("what was read ahead is asked for piece by piece", "[link][secret]") {
  pair p;
  p.open(secret, secret);
  // Behind the secret, and more than is read ahead at a time.
  std::string said;
  for (int i = 0; said.size() < 40'000; ++i) said += std::to_string(i) + ' ';
  CHECK(p.write(*p.engine, said) == result::done);
  std::string heard;
  // As BASP does: a head of fixed size, then a body, which may be long.
  for (std::size_t wanted = 32; heard.size() < said.size(); wanted = wanted == 32 ? 17'000 : 32) {
    std::vector<char> bytes(std::min(wanted, said.size() - heard.size()));
    std::size_t got = 0;
    const auto ahead = p.node->pending();
    REQUIRE(p.node->read(bytes.data(), bytes.size(), got) == result::done);
    REQUIRE(got > 0);
    // What is here already is given without looking for more.
    if (ahead > 0) CHECK(got == std::min(ahead, bytes.size()));
    heard.append(bytes.data(), got);
  }
  CHECK(heard == said);
  CHECK(p.node->pending() == 0);
  std::string none;
  CHECK(p.read(*p.node, none) == result::again);
  // The end comes behind what was said before it.
  CHECK(p.write(*p.engine, "last words") == result::done);
  p.close_engine();
  char first = 0;
  std::size_t got = 0;
  CHECK(p.node->read(&first, 1, got) == result::done);
  CHECK(p.node->pending() == 9);
  CHECK(p.read(*p.node, none) == result::done);
  CHECK(none == "ast words");
  CHECK(p.read(*p.node, none) == result::over);
}

TEST_CASE("the secret may come in pieces", "[link][secret]") {
  pair p;
  p.open(secret, secret);
  std::string nothing;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    CHECK(p.read(*p.node, nothing) == result::again);
    CHECK_FALSE(p.node->proved());
    REQUIRE(::write(p.fds[1], &secret[i], 1) == 1);
  }
  CHECK(p.read(*p.node, nothing) == result::again);
  CHECK(p.node->proved());
  CHECK(nothing.empty());
}

TEST_CASE("nothing of what comes without the secret is read, and nothing is said",
          "[link][secret]") {
  pair p;
  std::string got;
  SECTION("another secret") {
    auto other = secret;
    other.back() ^= 1;
    p.open(secret, other);
    CHECK(p.write(*p.node, "for the engine only") == result::done);
    CHECK(p.write(*p.engine, "an order") == result::done);
    CHECK(p.read(*p.node, got) == result::over);
    CHECK(p.node_said == std::vector<std::string>{"it does not know the secret of this start: it "
                                                  "is no child of this node"});
    p.close_node();
    CHECK(p.read(*p.engine, got) == result::over);
    CHECK(p.engine_said ==
          std::vector<std::string>{"the node ended the connection before a word: this is not its "
                                   "secret"});
  }
  SECTION("silence, then the end") {
    p.open(secret, {});
    CHECK(p.write(*p.node, "for the engine only") == result::done);
    CHECK(p.read(*p.node, got) == result::again);
    p.close_engine();
    CHECK(p.read(*p.node, got) == result::over);
    CHECK(p.node_said.size() == 1);
    // Said once.
    CHECK(p.read(*p.node, got) == result::over);
    CHECK(p.node_said.size() == 1);
  }
  SECTION("too much is to be said to who is silent") {
    p.open(secret, secret);
    CHECK(p.write(*p.node, std::string(early_bytes_max, 'x')) == result::done);
    CHECK(p.write(*p.node, "x") == result::over);
  }
  CHECK(got.empty());
  CHECK((!p.node || !p.node->proved()));
}

TEST_CASE("who stays silent is cut off in time, the oldest first", "[link]") {
  waiting_room room;
  const auto start = waiting_room::clock::now();
  std::vector<std::unique_ptr<pair>> all;
  const auto ended = [&](std::size_t i) {
    char byte = 0;
    return ::recv(all[i]->fds[1], &byte, 1, 0) == 0;
  };
  for (std::size_t i = 0; i < unproved_max; ++i) {
    all.push_back(std::make_unique<pair>());
    room.enter(all.back()->fds[0], start + std::chrono::milliseconds{i});
  }
  CHECK(room.size() == unproved_max);
  CHECK_FALSE(ended(0));
  SECTION("another one comes") {
    room.leave(all[0]->fds[0]);  // it has proved itself
    all.push_back(std::make_unique<pair>());
    room.enter(all.back()->fds[0], start + std::chrono::milliseconds{100});
    CHECK_FALSE(ended(1));
    all.push_back(std::make_unique<pair>());
    room.enter(all.back()->fds[0], start + std::chrono::milliseconds{100});
    CHECK(ended(1));
    CHECK_FALSE(ended(0));
    CHECK_FALSE(ended(2));
  }
  SECTION("their time is over") {
    room.sweep(start + proof_timeout + std::chrono::milliseconds{9});
    CHECK(ended(9));
    CHECK_FALSE(ended(10));
    CHECK(room.size() == unproved_max - 10);
  }
}
