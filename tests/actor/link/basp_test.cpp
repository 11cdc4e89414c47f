// The contract of links over BASP: two actor systems, with production's door, TLS, dialler and
// connector, and a relay between them that can be cut.

#include "actors/link/door.hpp"
#include "actors/link/sockets.hpp"
#include "actors/link/tls_session.hpp"
#include "tests/actor/link/basp.hpp"
#include "tests/support/certificates.hpp"
#include "tests/support/relay.hpp"

#include <catch2/catch.hpp>

#include <thread>

using namespace troupe;
using namespace troupe::link;
using namespace troupe::link::contract;

namespace {

struct over_basp : scene {
  explicit over_basp(const std::string& cluster_of_a)
      : scene(first.at, second.at), first("a", 1, cluster_of_a) {}
  ~over_basp() override {
    // A connector ends its link by a message to it, which needs time and a wire.
    wire.cut_there(false);
    wire.cut_back(false);
  }

  door guarded(const std::string& host, std::map<endpoint, std::string> hosts) {
    ours.write_host(host);
    auto o = std::make_shared<tls_options>();
    o->credentials = trust::credentials::load(
                         {ours.folder.host(host), ours.folder.host_key(host), ours.folder.ca()},
                         trust::tls_use::cluster)
                         .value();
    o->hosts = std::move(hosts);
    o->on_refused = [](const std::string&, const error&) {};
    door d;
    d.peers = o->peers;
    d.by = tls_guard(std::move(o));
    return d;
  }

  void connect() override {
    if (listener) return;  // its connector comes again by itself
    const auto port = listen_at(b.system, b.shared(), "127.0.0.1", 0, guarded("b", {}), listener);
    REQUIRE(port);
    b.actors.push_back(listener);
    wire.lead_to(*port);
    const auto at = guarded("a", {{{"127.0.0.1", wire.port()}, "b"}});
    a.context.dialler = spawn_dialler(a.system, *at.by);
    a.actors.push_back(spawn_connector(a.system, a.shared(), "b", "127.0.0.1", wire.port()));
  }
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

  test::certificates ours;
  test::relay wire;
  basp_process first, second{"b", 2};
  caf::actor listener;
};

}  // namespace

std::unique_ptr<scene> contract::make_scene(const std::string& cluster_of_a) {
  return std::make_unique<over_basp>(cluster_of_a);
}
