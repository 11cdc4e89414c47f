// Two ends of a link's TLS over a pair of sockets, step by step.

#include "actors/link/tls_session.hpp"
#include "tests/support/certificates.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::link;
using result = session::result;

namespace {

const endpoint from_client{"10.0.0.2", 4711}, to_server{"10.0.0.1", 7100};

/// One side, with what it was told.
struct side {
  std::vector<error> refusals;
  std::shared_ptr<tls_peers> peers = std::make_shared<tls_peers>();
  std::unique_ptr<session> at;
  int fd = -1;

  ~side() {
    at.reset();
    if (fd >= 0) ::close(fd);
  }
  /// `careless`: one that looks at nobody's certificate, not even its own.
  void open(int with, const endpoint& remote, const test::certificates& by, const std::string& name,
            const std::string& expected, bool careless = false) {
    fd = with;
    auto o = std::make_shared<tls_options>();
    o->credentials = trust::credentials::load({by.folder.host(name), by.folder.host_key(name),
                                               careless ? "" : by.folder.ca()},
                                              trust::tls_use::cluster)
                         .value();
    o->peers = peers;
    o->on_refused = [this](const std::string&, const error& why) { refusals.push_back(why); };
    at = std::make_unique<tls_session>(fd, remote, expected, std::move(o));
  }
  result read(std::string& into) const {
    char bytes[4'096];
    std::size_t got = 0;
    const auto r = at->read(bytes, sizeof bytes, got);
    into.append(bytes, got);
    return r;
  }
  result write(const std::string& text) const {
    std::size_t taken = 0;
    const auto r = at->write(text.data(), text.size(), taken);
    if (r == result::done && text.size() <= 4'096) CHECK(taken == text.size());
    return r;
  }
  std::string said() const { return refusals.empty() ? "" : refusals.front().message; }
};

struct pair {
  pair() {
    ::signal(SIGPIPE, SIG_IGN);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    ours.write_host("h0");
    ours.write_host("h1");
  }
  /// `h0` listens, and whoever connects has these certificates and means to find this host.
  void open(const test::certificates& theirs, const std::string& name,
            const std::string& expected) {
    server.open(fds[0], from_client, ours, "h0", {});
    client.open(fds[1], to_server, theirs, name, expected);
  }
  /// Both read in turn; true when both could, with what the other wrote.
  bool talk() {
    (void)client.write("");
    std::string at_server, at_client;
    for (int turn = 0; turn < 20; ++turn) {
      if (server.read(at_server) == result::over || client.read(at_client) == result::over)
        return false;
      if (at_server == "question" && at_client == "answer") return true;
    }
    return false;
  }

  int fds[2] = {-1, -1};
  test::certificates ours;
  side server, client;
};

}  // namespace

TEST_CASE("hosts of one CA talk; what is said too early waits", "[link][tls]") {
  pair p;
  p.open(p.ours, "h1", "h0");
  // Both sides write before there was a handshake, as BASP does.
  CHECK(p.server.write("answer") == result::done);
  CHECK(p.client.write("question") == result::done);
  REQUIRE(p.talk());
  const auto who = p.server.peers->find(from_client);
  REQUIRE(who);
  CHECK(who->dns == std::vector<std::string>{"h1"});
  CHECK(p.client.peers->find(to_server)->name == "h0");
  // Known for as long as the connection is.
  p.server.at.reset();
  CHECK_FALSE(p.server.peers->find(from_client));
  std::string rest;
  CHECK(p.client.read(rest) == result::over);
  CHECK(p.client.refusals.empty());
}

TEST_CASE("a silent peer is waited for without a word more", "[link][tls]") {
  pair p;
  p.open(p.ours, "h1", "h0");
  // The client says nothing: each write is taken, and each read is `again`.
  std::string nothing;
  for (int i = 0; i < 3; ++i) {
    CHECK(p.server.write("x") == result::done);
    CHECK(p.server.read(nothing) == result::again);
  }
  CHECK_FALSE(p.server.at->proved());
  // Up to a limit.
  CHECK(p.server.write(std::string(early_bytes_max, 'x')) == result::over);
  CHECK(p.server.refusals.size() == 1);
}

TEST_CASE("strangers are refused, and it is said why", "[link][tls]") {
  pair p;
  test::certificates others;
  SECTION("another CA") {
    others.write_host("h1");
    p.open(others, "h1", "h0");
    CHECK_FALSE(p.talk());
    CHECK((p.server.said() + p.client.said()).find("its certificate: ") != std::string::npos);
  }
  SECTION("not the host that was meant") {
    p.open(p.ours, "h1", "h7");
    CHECK_FALSE(p.talk());
    CHECK(p.client.said() ==
          "no TLS with host 'h7' at 10.0.0.1: its certificate: hostname mismatch; each host needs "
          "the certificate of its own name");
  }
  SECTION("an expired certificate") {
    p.ours.write_host("h1", p.ours.issue("h1", trust::role::host,
                                         test::certificates::now() - trust::certificate_validity -
                                             trust::days{1}));
    p.server.open(p.fds[0], from_client, p.ours, "h0", {});
    p.client.open(p.fds[1], to_server, p.ours, "h1", "h0", true);
    CHECK_FALSE(p.talk());
    CHECK(p.server.said().find("certificate has expired; `troupe cert renew`") !=
          std::string::npos);
  }
  SECTION("a person's certificate") {
    p.ours.write_host("h1", p.ours.issue("h1", trust::role::operator_));
    p.open(p.ours, "h1", "h0");
    CHECK_FALSE(p.talk());
    CHECK(p.server.said().find("for the role operator, which has no access here") !=
          std::string::npos);
  }
  CHECK_FALSE(p.server.peers->find(from_client));
  CHECK_FALSE(p.server.at->proved());
}

TEST_CASE("no certificate at all is refused, and who has none hears what to do", "[link][tls]") {
  pair p;
  p.server.open(p.fds[0], from_client, p.ours, "h0", {});
  const std::shared_ptr<SSL_CTX> context{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
  const std::shared_ptr<SSL> stranger{SSL_new(context.get()), &SSL_free};
  SSL_set_fd(stranger.get(), p.fds[1]);
  SSL_set_connect_state(stranger.get());
  std::string nothing;
  auto r = result::again;
  for (int turn = 0; turn < 20 && r == result::again; ++turn) {
    (void)SSL_do_handshake(stranger.get());
    r = p.server.read(nothing);
  }
  CHECK(r == result::over);
  CHECK(nothing.empty());
  CHECK(p.server.said().find("peer did not return a certificate") != std::string::npos);
  ::close(p.fds[1]);
}

TEST_CASE("what is longer than a socket takes goes over in parts, and comes whole", "[link][tls]") {
  pair p;
  p.open(p.ours, "h1", "h0");
  CHECK(p.server.write("answer") == result::done);
  CHECK(p.client.write("question") == result::done);
  REQUIRE(p.talk());
  std::string text(3'000'000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  std::string come;
  std::size_t at = 0;
  bool was_full = false;
  for (int turn = 0; turn < 100'000 && come.size() < text.size(); ++turn) {
    std::size_t taken = 0;
    if (at < text.size()) {
      // CAF's buffer may have moved between two tries.
      const std::string rest = text.substr(at, 1'000'000);
      const auto r = p.client.at->write(rest.data(), rest.size(), taken);
      REQUIRE(r != result::over);
      was_full = was_full || r == result::again;
      at += taken;
    }
    if (taken == 0)
      while (p.server.read(come) == result::done) {
      }
  }
  CHECK(was_full);
  CHECK(come == text);
}

TEST_CASE("plain words to a port for TLS end it", "[link][tls]") {
  pair p;
  p.server.open(p.fds[0], from_client, p.ours, "h0", {});
  REQUIRE(::write(p.fds[1], "CAF plain handshake", 19) == 19);
  std::string nothing;
  CHECK(p.server.read(nothing) == result::over);
  CHECK(p.server.refusals.size() == 1);
  // Said once.
  CHECK(p.server.read(nothing) == result::over);
  CHECK(p.server.refusals.size() == 1);
  ::close(p.fds[1]);
}

TEST_CASE("a port that was taken again is its newer connection's", "[link][tls]") {
  tls_peers peers;
  trust::facts a, b;
  a.name = "a";
  b.name = "b";
  const auto first = peers.add(from_client, a);
  peers.add(from_client, b);
  peers.remove(from_client, first);
  CHECK(peers.find(from_client)->name == "b");
}
