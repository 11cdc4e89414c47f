// The gateway's part of a node: its first start, its supervisor, and its entry in the directory.
// Its server has a real port and a thread of its own; the actors run step by step.

#include "apps/node/data_plane.hpp"

#include "tests/support/deterministic_system.hpp"
#include "tests/support/http_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <optional>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;

/// Another process that listens at a port.
class other_process {
 public:
  explicit other_process(std::uint16_t port = 0)
      : listener_(io_, {asio::ip::make_address("127.0.0.1"), port}) {}
  std::uint16_t port() const { return listener_.local_endpoint().port(); }

 private:
  asio::io_context io_;
  asio::ip::tcp::acceptor listener_;
};

config::cluster one_gateway(std::uint16_t port) {
  config::cluster c;
  c.section.id = "test";
  config::gateway g;
  g.host = "h0";
  g.address = "127.0.0.1";
  g.port = port;
  g.where = {"c.toml", 7, 1};
  c.gateways.push_back(g);
  return c;
}

std::uint16_t free_port() { return other_process{}.port(); }

/// The records come first, since actors still write to them while the system ends.
struct records {
  bool root_ended = false;
  std::uint64_t generation = 100;
  config::cluster cluster;
};

struct scene : records, test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor directory;
  std::optional<apps::data_plane> data;
  caf::actor root;

  explicit scene(std::uint16_t port = free_port()) {
    spdlog::set_level(spdlog::level::off);
    cluster = one_gateway(port);
    directory = own(directory::spawn_directory(system, "h0", {1}, office, view));
    data.emplace(system, cluster, apps::data_plane_ground{"h0", office, view, directory, [this] {
                                                            return ++generation;
                                                          }});
    run();
  }
  ~scene() {
    // What it starts refers to `data`.
    if (root) caf::anon_send_exit(root, caf::exit_reason::user_shutdown);
    run();
  }
  void start_root() {
    supervision::supervisor_options o;
    o.name = "root";
    o.limits = {1, 3600s, 10ms, 10ms};
    data->add_gateway(o.children);
    root = own(supervision::spawn_supervisor(system, std::move(o)));
    root->attach_functor([this](const caf::error&) { root_ended = true; });
    run();
  }
  /// Its generation; 0: it is not in the directory.
  std::uint64_t announced() {
    run();
    const auto all = view->get();
    const auto i = all->find("gateway/h0");
    return i == all->end() ? 0 : i->second.generation;
  }
  int healthz() {
    test::raw_client c{cluster.gateways[0].port};
    c.send(test::get("/healthz"));
    return test::status_of(c.read_reply());
  }
};

}  // namespace

TEST_CASE("a gateway that cannot listen at the first start is told with its place in the file") {
  other_process other;
  scene s{other.port()};
  auto opened = s.data->open_gateway();
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == "port_in_use");
  CHECK_THAT(opened.error().message, Catch::StartsWith("c.toml:7:1: gateway of host h0: "));
  CHECK_THAT(opened.error().message, Catch::Contains(std::to_string(other.port())));
}

TEST_CASE("a gateway that was opened is taken over by its supervisor, and then announced") {
  scene s;
  REQUIRE(s.data->open_gateway());
  CHECK(s.healthz() == 200);
  CHECK(s.announced() == 0);
  s.start_root();
  CHECK(s.healthz() == 200);
  CHECK(s.announced() == 101);
  caf::anon_send_exit(s.root, caf::exit_reason::user_shutdown);
  s.run();
  CHECK(s.root_ended);
  CHECK(s.announced() == 0);
}

TEST_CASE("a gateway whose port was taken away is tried until it is free, at nobody else's cost") {
  scene s;
  REQUIRE(s.data->open_gateway());
  s.start_root();
  REQUIRE(s.announced() == 101);
  caf::anon_send_exit(s.data->current_gateway(), caf::exit_reason::kill);
  s.run();
  CHECK(s.announced() == 0);
  {
    other_process other{s.cluster.gateways[0].port};
    s.advance(10min, 1s);
    CHECK_FALSE(s.root_ended);
    CHECK(s.announced() == 0);
  }
  s.advance(11s, 1s);
  CHECK(s.healthz() == 200);
  CHECK(s.announced() == 102);
}

TEST_CASE("tenants that come and go with a newer cluster file are let in and shut out at once") {
  // How it can fail: a key that goes on after it was taken out, also at a gateway that was started
  // anew since; a tenant whose limits its hub has never heard of.
  scene s;
  s.cluster.models.push_back({});
  s.cluster.models[0].name = "m";
  REQUIRE(s.data->open_gateway());
  const auto list = [&](const std::string& key) {
    test::raw_client c{s.cluster.gateways[0].port};
    c.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key +
           "\r\n\r\n");
    return test::status_of(c.read_reply());
  };
  CHECK(list("old") == 200);  // nobody needs one
  auto next = s.cluster;
  config::tenant t;
  t.name = "acme";
  t.models = {"m"};
  t.keys = {admission::to_hex(admission::hash_key("old"))};
  t.limits.push_back({});
  t.limits[0].model = "m";
  t.limits[0].best_effort_weight = 1;
  next.tenants = {t};
  s.data->take_over(next);
  CHECK(list("old") == 200);
  CHECK(list("new") == 401);
  next.tenants[0].keys = {admission::to_hex(admission::hash_key("new"))};
  s.data->take_over(next);
  CHECK(list("old") == 401);
  CHECK(list("new") == 200);
  s.start_root();
  caf::anon_send_exit(s.data->current_gateway(), caf::exit_reason::kill);
  s.advance(11s, 1s);
  CHECK(list("old") == 401);
  CHECK(list("new") == 200);
}

TEST_CASE("a shard that begins anew while its node drains says that it drains, too") {
  scene s;
  config::host h;
  h.name = "h0";
  s.cluster.hosts.push_back(h);
  config::router r;
  r.host = "h0";
  s.cluster.routers.push_back(r);
  apps::data_plane data{
      s.system, s.cluster,
      apps::data_plane_ground{"h0", s.office, s.view, s.directory, [&] { return ++s.generation; }}};
  std::vector<supervision::child_spec> children;
  data.add_children(children);
  REQUIRE(children.front().id == "router/0");
  const auto state = [&] {
    s.run();
    return s.view->get()->at("router/0").state;
  };
  const auto first = s.own(children.front().start(1).value());
  CHECK(state() != msg::EntryState::DRAINING);
  data.drain_shards();
  CHECK(state() == msg::EntryState::DRAINING);
  caf::anon_send_exit(first, caf::exit_reason::kill);
  s.run();
  s.own(children.front().start(2).value());
  CHECK(state() == msg::EntryState::DRAINING);
  CHECK(s.view->get()->at("router/0").generation == 2);
}
