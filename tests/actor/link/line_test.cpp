// The contract of links over BASP's indirect routes: three actor systems in a line, of which the
// one in the middle knows nothing of the link that passes it.

#include "actors/link/door.hpp"
#include "tests/actor/link/basp.hpp"
#include "tests/support/certificates.hpp"
#include "tests/support/relay.hpp"

#include <catch2/catch.hpp>

#include <thread>

using namespace troupe;
using namespace troupe::link;
using namespace troupe::link::contract;
using namespace std::chrono_literals;

namespace {

struct in_a_line : scene {
  explicit in_a_line(const std::string& cluster_of_a)
      : scene(first.at, second.at), first("a", 1, cluster_of_a) {
    wire.lead_to(middle.port());
  }

  void offer(const caf::actor& what) {
    REQUIRE(wait_until([&] { return leave_at_exchange(b.system, middle.port(), "b", what); },
                       patience));
  }
  caf::actor found() {
    caf::actor x;
    REQUIRE(wait_until(
        [&] {
          x = ask_exchange(a.system, wire.port(), "b");
          return x != nullptr;
        },
        patience));
    return x;
  }
  /// By another listener each time: BASP forgets an indirect route when the process in the middle
  /// is lost, and learns it again by a handle that it doesn't know yet.
  void connect() override {
    const auto listener = spawn_listener(b.system, b.shared());
    b.actors.push_back(listener);
    offer(listener);
    meet();
  }
  void meet() { a.actors.push_back(spawn_link(a.system, a.shared(), found(), a.context.owner)); }
  /// Between host a and the middle.
  void cut(const side& speaker) override {
    if (&speaker == &a)
      wire.cut_there(true);
    else
      wire.cut_back(true);
  }
  void mend() override {
    wire.cut_there(false);
    wire.cut_back(false);
  }
  void pass(milliseconds time) override { std::this_thread::sleep_for(time); }
  bool until(const std::function<bool()>& condition, milliseconds at_most) override {
    return wait_until(condition, at_most + busy_machine);
  }

  exchange middle;
  test::relay wire;
  basp_process first, second{"b", 2};
};

}  // namespace

std::unique_ptr<scene> contract::make_scene(const std::string& cluster_of_a) {
  return std::make_unique<in_a_line>(cluster_of_a);
}

TEST_CASE("the ends of the line have no connection to each other") {
  in_a_line s{"c"};
  s.link();
  CHECK_FALSE(is_direct(s.a.system, s.found()));
  const auto desk = s.a.system.middleman().remote_actor("127.0.0.1", s.wire.port());
  REQUIRE(desk);
  CHECK(is_direct(s.a.system, *desk));
}

TEST_CASE("where hosts show certificates, who comes over another one's connection has shown none") {
  in_a_line s{"c"};
  door d;
  auto o = std::make_shared<tls_options>();
  test::certificates ours;
  ours.write_host("b");
  o->credentials = trust::credentials::load(
                       {ours.folder.host("b"), ours.folder.host_key("b"), ours.folder.ca()},
                       trust::tls_use::cluster)
                       .value();
  o->on_refused = [](const std::string&, const error&) {};
  d.peers = o->peers;
  d.by = tls_guard(std::move(o));
  caf::actor listener;
  REQUIRE(listen_at(s.b.system, s.b.shared(), "127.0.0.1", 0, d, listener));
  s.b.actors.push_back(listener);
  s.offer(listener);
  s.meet();
  REQUIRE(s.until([&] { return s.a.heard->refusals.size() > 0; }, patience));
  CHECK(s.a.heard->refusals.all()[0].why.code == "not_proved");
  CHECK(s.b.heard->ups.size() == 0);
}
