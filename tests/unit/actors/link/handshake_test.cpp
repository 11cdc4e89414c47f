#include "actors/link/door.hpp"
#include "actors/link/handshake.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::link;

namespace {

identity node(std::string host, std::uint8_t process) {
  identity i;
  i.cluster_id = "c";
  i.process.fill(process);
  i.host = std::move(host);
  i.config->set({1, {{"limits", 1}, {"pool", 2}}});
  i.secret.assign(32, 7);
  return i;
}

identity engine(std::uint8_t process) {
  auto i = node("a", process);
  i.kind = msg::ProcessKind::ENGINE;
  i.engine = "decode/p/a.0";
  i.generation = 42;
  return i;
}

expected<peer_info> judge_hello(const identity& self, const msg::envelope<msg::Hello>& hello) {
  msg::view<msg::Hello> v{hello};
  return judge(self, *v, {"a", "b"});
}
expected<peer_info> judge_peer(const identity& self, const identity& peer) {
  return judge_hello(self, make_hello(peer));
}

/// A Hello with one thing changed.
template <class F>
msg::envelope<msg::Hello> altered(const identity& peer, F change) {
  auto original = make_hello(peer);
  msg::view<msg::Hello> v{original};
  msg::draft<msg::Hello> d;
  d->setClusterId(v->getClusterId());
  d->setProtocolMin(v->getProtocolMin());
  d->setProtocolMax(v->getProtocolMax());
  d->setProcessId(v->getProcessId());
  d->setKind(v->getKind());
  d->setHost(v->getHost());
  d->setEngine(v->getEngine());
  d->setSecret(v->getSecret());
  change(*d);
  return std::move(d).freeze().value();
}

bool mentions(const error& e, const std::string& what) {
  return e.message.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a node of the same cluster is welcome") {
  auto p = judge_peer(node("a", 1), node("b", 2));
  REQUIRE(p);
  CHECK(p->host == "b");
  CHECK(p->kind == msg::ProcessKind::NODE);
  CHECK(p->protocol == protocol_version);
  CHECK(p->skew.empty());
}

TEST_CASE("a refusal names the difference") {
  const auto self = node("a", 1);
  SECTION("another cluster") {
    auto other = node("b", 2);
    other.cluster_id = "staging";
    auto p = judge_peer(self, other);
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "other_cluster");
    CHECK(mentions(p.error(), "staging"));
    CHECK(mentions(p.error(), "'c'"));
    CHECK(mentions(p.error(), "'b'"));
  }
  SECTION("a host that the cluster file doesn't have") {
    auto p = judge_peer(self, node("z", 2));
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "unknown_host");
    CHECK(mentions(p.error(), "'z'"));
  }
  SECTION("a second node of our own name") {
    auto p = judge_peer(self, node("a", 2));
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "duplicate_host");
  }
  SECTION("ourselves") {
    auto p = judge_peer(self, node("b", 1));
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "self_connection");
  }
  SECTION("only newer protocols") {
    auto p = judge_hello(self, altered(node("b", 2), [](auto h) {
                           h.setProtocolMin(protocol_version + 1);
                           h.setProtocolMax(protocol_version + 2);
                         }));
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "protocol_mismatch");
    CHECK(mentions(p.error(), std::to_string(protocol_version + 2)));
  }
}

TEST_CASE("the highest common protocol is spoken") {
  auto p = judge_hello(node("a", 1), altered(node("b", 2), [](auto h) {
                         h.setProtocolMin(protocol_version);
                         h.setProtocolMax(protocol_version + 1);
                       }));
  REQUIRE(p);
  CHECK(p->protocol == protocol_version);
  // A build before this one, at either side.
  auto older = node("b", 2);
  older.protocol_max = protocol_version - 1;
  p = judge_peer(node("a", 1), older);
  REQUIRE(p);
  CHECK(p->protocol == protocol_version - 1);
  p = judge_peer(older, node("a", 1));
  REQUIRE(p);
  CHECK(p->protocol == protocol_version - 1);
}

TEST_CASE("malformed words are refused") {
  const auto self = node("a", 1);
  auto change = GENERATE(0, 1, 2);
  auto p = judge_hello(self, altered(node("b", 2), [&](auto h) {
                         const kj::byte few[] = {1, 2, 3};
                         if (change == 0)
                           h.setProcessId(kj::arrayPtr(few, 3));
                         else if (change == 1)
                           h.setKind(msg::ProcessKind::UNKNOWN);
                         else
                           h.setProcessId(kj::ArrayPtr<const kj::byte>{});
                       }));
  REQUIRE_FALSE(p);
  CHECK(p.error().code == "malformed_hello");
}

TEST_CASE("an engine must know the secret of this start") {
  const auto self = node("a", 1);
  SECTION("it does") {
    auto p = judge_peer(self, engine(9));
    REQUIRE(p);
    CHECK(p->engine == "decode/p/a.0");
    CHECK(p->generation == 42);
  }
  SECTION("one bit is wrong") {
    auto e = engine(9);
    e.secret.back() ^= 1;
    auto p = judge_peer(self, e);
    REQUIRE_FALSE(p);
    CHECK(p.error().code == "bad_secret");
  }
  SECTION("too short, a prefix") {
    auto e = engine(9);
    e.secret.pop_back();
    CHECK_FALSE(judge_peer(self, e));
  }
  SECTION("none, even where the node has none") {
    auto e = engine(9);
    e.secret.clear();
    CHECK_FALSE(judge_peer(self, e));
    auto bare = self;
    bare.secret.clear();
    CHECK_FALSE(judge_peer(bare, e));
  }
}

TEST_CASE("another configuration is skew, not a refusal") {
  auto peer = node("b", 2);
  const std::map<std::string, std::uint64_t> theirs{{"limits", 1}, {"pool", 3}, {"health", 4}};
  peer.config->set({1, theirs});
  auto p = judge_peer(node("a", 1), peer);
  REQUIRE(p);
  CHECK(p->skew == std::vector<std::string>{"health", "pool"});
  CHECK(p->behind.empty());
  peer.config->set({2, theirs});
  CHECK(judge_peer(node("a", 1), peer)->behind == "a");
  peer.config->set({0, theirs});
  CHECK(judge_peer(node("a", 1), peer)->behind == "b");
  // What was reloaded is told from then on.
  const auto us = node("a", 1);
  us.config->set({0, theirs});
  CHECK(judge_peer(us, peer)->skew.empty());
}

TEST_CASE("a peer has the name in its certificate, or none", "[link]") {
  peer_info claimed;
  claimed.kind = msg::ProcessKind::NODE;
  claimed.host = "b";
  trust::facts shown;
  shown.name = "b";
  shown.as = trust::role::host;
  shown.dns = {"b"};
  CHECK(prove(claimed, shown)->host == "b");
  CHECK(prove(claimed, std::nullopt).error().code == "not_proved");
  shown.dns = {"a"};
  shown.name = "a";
  const auto other = prove(claimed, shown);
  REQUIRE_FALSE(other);
  CHECK(other.error().code == "other_host");
  CHECK(other.error().message ==
        "a node calls itself host 'b', but its certificate is that of host 'a'");
  shown.dns = {"b"};
  shown.as = trust::role::operator_;
  CHECK(prove(claimed, shown).error().code == "not_proved");
}
