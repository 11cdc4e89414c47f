// Links over real sockets of one machine, guarded by certificates or by a secret: who comes up with
// whom, and that what is large goes over.

#include "actors/link/door.hpp"
#include "actors/link/link_actor.hpp"
#include "actors/link/secret_session.hpp"
#include "actors/link/sockets.hpp"
#include "actors/link/system_config.hpp"
#include "tests/support/certificates.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::link;

namespace {

/// Nothing takes that long when all is well.
constexpr std::chrono::seconds patience{30};

/// What happened at one side, for another thread that waits for it.
class record {
 public:
  void add(std::string what) {
    const std::lock_guard lock{mutex_};
    all_.push_back(std::move(what));
    more_.notify_all();
  }
  bool wait(const std::string& part) {
    std::unique_lock lock{mutex_};
    if (more_.wait_for(lock, patience, [&] { return has(part); })) return true;
    for (const auto& x : all_) WARN(x);
    return false;
  }
  bool was_up() {
    const std::lock_guard lock{mutex_};
    for (const auto& x : all_)
      if (x.rfind("up ", 0) == 0) return true;
    return false;
  }

 private:
  bool has(const std::string& part) const {
    for (const auto& x : all_)
      if (x.find(part) != std::string::npos) return true;
    return false;
  }
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::string> all_;
};

caf::behavior owner(caf::event_based_actor* self, record* to,
                    const std::shared_ptr<std::promise<caf::actor>>& first) {
  self->set_default_handler(caf::drop);
  return {
      [to, first](const link_up& x) {
        to->add("up " + x.peer.host);
        first->set_value(x.link);
      },
      [to](const link_down& x) { to->add("down " + x.peer.host); },
      [to](const link_refused& x) { to->add("refused " + x.why.code + ": " + x.why.message); },
  };
}

/// A port whose host lets nobody in and sends nobody away, as one that has no power.
class black_hole {
 public:
  black_hole() {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    REQUIRE(::bind(fd_, at(), size) == 0);
    REQUIRE(::getsockname(fd_, at(), &size) == 0);
    REQUIRE(::listen(fd_, 0) == 0);
    // What comes after these finds the queue full.
    for (int i = 0; i < 3; ++i) {
      waiting_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(waiting_.back(), at(), sizeof address_);
    }
  }
  ~black_hole() {
    for (int fd : waiting_) ::close(fd);
    ::close(fd_);
  }
  black_hole(const black_hole&) = delete;
  black_hole& operator=(const black_hole&) = delete;
  std::uint16_t port() const { return ntohs(address_.sin_port); }

 private:
  sockaddr* at() { return reinterpret_cast<sockaddr*>(&address_); }
  int fd_ = -1;
  sockaddr_in address_{};
  std::vector<int> waiting_;
};

/// One process: an actor system with its links.
class process {
 public:
  process(const std::string& host, std::uint8_t number,
          msg::ProcessKind kind = msg::ProcessKind::NODE) {
    spdlog::set_level(spdlog::level::off);
    ::signal(SIGPIPE, SIG_IGN);
    system.await_actors_before_shutdown(false);
    context.self.cluster_id = "test";
    context.self.process.fill(number);
    context.self.host = host;
    context.self.kind = kind;
    context.self.secret.assign(32, 9);
    context.known_hosts = {"a", "b", "c"};
    context.office = office;
    context.owner = system.spawn(owner, &seen, link);
    context.timing.refused_retry = std::chrono::seconds{60};
  }
  ~process() {
    for (const auto& x : actors) caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    if (context.dialler) end_dialler(context.dialler);
    caf::anon_send_exit(context.owner, caf::exit_reason::user_shutdown);
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;

  /// By a certificate in the name of `shown`; to meet these hosts at this port.
  void use_tls(const test::certificates& by, const std::string& shown,
               std::map<endpoint, std::string> hosts = {}) {
    by.write_host(shown);
    auto o = std::make_shared<tls_options>();
    o->credentials = trust::credentials::load(
                         {by.folder.host(shown), by.folder.host_key(shown), by.folder.ca()},
                         trust::tls_use::cluster)
                         .value();
    o->hosts = std::move(hosts);
    o->on_refused = [this](const std::string&, const error& why) {
      seen.add("refused " + why.code + ": " + why.message);
    };
    at.peers = o->peers;
    at.by = tls_guard(std::move(o));
  }
  void use_secret(std::uint8_t first) {
    auto o = std::make_shared<secret_options>();
    o->secret.assign(32, first);
    o->on_refused = [this](const error& why) {
      seen.add("refused " + why.code + ": " + why.message);
    };
    at.lets_in = msg::ProcessKind::ENGINE;
    at.by = secret_guard(std::move(o));
  }
  std::uint16_t listen() {
    caf::actor listener;
    const auto bound = listen_at(system, std::make_shared<const link_context>(context), "127.0.0.1",
                                 0, at, listener);
    REQUIRE(bound);
    actors.push_back(listener);
    return *bound;
  }
  void connect(const std::string& host, std::uint16_t port) {
    if (!context.dialler) context.dialler = spawn_dialler(system, at.by);
    actors.push_back(spawn_connector(system, std::make_shared<const link_context>(context), host,
                                     "127.0.0.1", port));
  }

  record seen;
  std::shared_ptr<std::promise<caf::actor>> link = std::make_shared<std::promise<caf::actor>>();
  system_config config;
  caf::actor_system system{config};
  std::shared_ptr<post_office> office = std::make_shared<post_office>();
  link_context context;
  door at;
  std::vector<caf::actor> actors;
};

}  // namespace

TEST_CASE("two hosts of one CA link, and what is large goes over", "[link][tls]") {
  test::certificates ours;
  process a{"a", 1}, b{"b", 2};
  b.use_tls(ours, "b");
  const auto port = b.listen();
  a.use_tls(ours, "a", {{{"127.0.0.1", port}, "b"}});
  a.connect("b", port);
  REQUIRE(a.seen.wait("up b"));
  REQUIRE(b.seen.wait("up a"));

  constexpr std::size_t bytes = 1'000'000;
  constexpr int messages = 20;
  record got;
  const auto sink = b.system.spawn(
      [](caf::event_based_actor*, record* to) -> caf::behavior {
        return {[to](const origin&, const msg::envelope<msg::Goodbye>& e) {
          const msg::view<msg::Goodbye> in{e};
          const std::string text = in->getReason().cStr();
          to->add(std::to_string(text.size()) + " " + text.substr(0, text.find(' ')));
        }};
      },
      &got);
  b.actors.push_back(sink);
  b.office->bind("sink", 1, sink);
  a.office->set_route("sink", 1, a.link->get_future().get());
  for (int i = 0; i < messages; ++i) {
    msg::draft<msg::Goodbye> d;
    auto text = std::to_string(i) + " ";
    text.resize(bytes, 'x');
    d->setReason(text);
    a.office->send({"sink", 1}, {"source", 1}, std::move(d).freeze().value());
  }
  for (int i = 0; i < messages; ++i)
    REQUIRE(got.wait(std::to_string(bytes) + " " + std::to_string(i)));
}

TEST_CASE("peers that don't answer at all don't hold up the way to one that does", "[link]") {
  // How it can fail: one after the other is dialled, and the good one's turn comes when its
  // connector has given up and asked again.
  std::vector<std::unique_ptr<black_hole>> gone;
  process a{"a", 1}, b{"b", 2};
  for (int i = 0; i < 4; ++i) {
    gone.push_back(std::make_unique<black_hole>());
    a.connect("c", gone.back()->port());
  }
  a.connect("b", b.listen());
  CHECK(a.seen.wait("up b"));
}

TEST_CASE("a host that calls itself by another's name is refused", "[link][tls]") {
  test::certificates ours;
  process a{"a", 1}, b{"b", 2};
  b.use_tls(ours, "b");
  const auto port = b.listen();
  // Its certificate is c's, which is a host of the cluster, too.
  a.use_tls(ours, "c", {{{"127.0.0.1", port}, "b"}});
  a.connect("b", port);
  CHECK(b.seen.wait("refused other_host: a node calls itself host 'a', but its certificate is that "
                    "of host 'c'"));
  CHECK(a.seen.wait("refused other_host"));
  CHECK_FALSE(b.seen.was_up());
  CHECK_FALSE(a.seen.was_up());
}

TEST_CASE("a host of another CA is refused, and both say so", "[link][tls]") {
  test::certificates ours, theirs;
  process a{"a", 1}, b{"b", 2};
  b.use_tls(ours, "b");
  const auto port = b.listen();
  a.use_tls(theirs, "a", {{{"127.0.0.1", port}, "b"}});
  a.connect("b", port);
  CHECK(a.seen.wait("refused tls_refused: no TLS with host 'b' at 127.0.0.1: its certificate: "));
  CHECK(b.seen.wait("refused tls_refused: no TLS with who connects from 127.0.0.1"));
  CHECK_FALSE(b.seen.was_up());
}

TEST_CASE("a plain node at a port for TLS, and the reverse, come to nothing", "[link][tls]") {
  test::certificates ours;
  process a{"a", 1}, b{"b", 2};
  SECTION("a plain one listens") {
    const auto port = b.listen();
    a.use_tls(ours, "a", {{{"127.0.0.1", port}, "b"}});
    a.connect("b", port);
    CHECK(a.seen.wait("is insecure_links set there, and not here?"));
  }
  SECTION("a plain one connects") {
    b.use_tls(ours, "b");
    a.connect("b", b.listen());
    CHECK(b.seen.wait("is insecure_links set there, and not here?"));
  }
  CHECK_FALSE(a.seen.was_up());
  CHECK_FALSE(b.seen.was_up());
}

TEST_CASE("an engine with the secret links, and nobody else", "[link][secret]") {
  process node{"a", 1}, engine{"a", 2, msg::ProcessKind::ENGINE};
  node.use_secret(9);
  const auto port = node.listen();
  SECTION("the secret") {
    engine.use_secret(9);
    engine.connect("own node", port);
    CHECK(engine.seen.wait("up a"));
    CHECK(node.seen.wait("up a"));
  }
  SECTION("another secret") {
    engine.use_secret(8);
    engine.connect("own node", port);
    CHECK(node.seen.wait("refused bad_secret"));
    CHECK(engine.seen.wait("refused bad_secret"));
    CHECK_FALSE(node.seen.was_up());
  }
  SECTION("a plain connection") {
    engine.connect("own node", port);
    CHECK(node.seen.wait("refused bad_secret"));
    CHECK_FALSE(node.seen.was_up());
    CHECK_FALSE(engine.seen.was_up());
  }
  SECTION("a node that knows it") {
    process other{"b", 3};
    other.use_secret(9);
    other.connect("a", port);
    CHECK(node.seen.wait("refused wrong_port"));
    CHECK_FALSE(node.seen.was_up());
  }
}
