// The gateway as a supervised actor. Its server has a real port and a thread of its own; the actors
// run step by step.

#include "actors/gateway/gateway_actor.hpp"
#include "actors/supervision/supervisor.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/fake_desk.hpp"
#include "tests/support/http_client.hpp"

#include <catch2/catch.hpp>

#include <thread>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct scene {
  std::shared_ptr<test::fake_desk> desk = std::make_shared<test::fake_desk>();
  gateway::gateway_options options;
  caf::actor gateway;
  int starts = 0;
  test::deterministic_system actors;
  caf::actor root;

  scene() {
    options.drain_notice = 0ms;
    options.models = {"words"};
    {
      gateway::http_gateway first{options, desk};
      REQUIRE(first.start());
      options.port = first.local_port();
    }
    supervision::supervisor_options o;
    o.name = "root";
    o.children.push_back({"gateway",
                          [this](std::uint64_t) -> expected<caf::actor> {
                            ++starts;
                            auto started = gateway::spawn_gateway(actors.system, options, desk);
                            if (started) gateway = *started;
                            return started;
                          },
                          supervision::restart_kind::transient});
    root = actors.own(supervision::spawn_supervisor(actors.system, std::move(o)));
    actors.run();
  }
  int healthz() {
    test::raw_client c{options.port};
    c.send(test::get("/healthz"));
    return test::status_of(c.read_reply());
  }
  std::string stream_of(test::raw_client& c, const std::string& model) {
    c.send(test::post("/v1/completions",
                      R"({"model":")" + model + R"(","prompt":"hi","stream":true})"));
    return c.read_until("\r\n\r\n");
  }
};

}  // namespace

TEST_CASE("a gateway that is killed ends its streams with an error, and another serves at its "
          "port") {
  scene s;
  REQUIRE(s.starts == 1);
  CHECK(s.healthz() == 200);
  test::raw_client c{s.options.port};
  CHECK(test::status_of(s.stream_of(c, "hang")) == 200);
  caf::anon_send_exit(s.gateway, caf::exit_reason::kill);
  s.actors.advance(1s);
  CHECK_THAT(c.read_all(), Catch::Contains("\"error\""));
  CHECK(c.closed());
  REQUIRE(s.starts == 2);
  CHECK(s.healthz() == 200);
}

TEST_CASE("a drained gateway says so once its last answer is out") {
  scene s;
  auto asker = s.actors.capture();
  test::raw_client c{s.options.port};
  CHECK(test::status_of(s.stream_of(c, "hang")) == 200);
  caf::anon_send(s.gateway, gateway::drain_gateway{asker});
  s.actors.run();
  std::this_thread::sleep_for(50ms);
  CHECK(s.actors.take<gateway::gateway_drained>(asker).empty());
  c.close();
  const auto until = std::chrono::steady_clock::now() + 20s;
  auto told = s.actors.take<gateway::gateway_drained>(asker);
  while (told.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(5ms);
    s.actors.run();
    told = s.actors.take<gateway::gateway_drained>(asker);
  }
  CHECK(told.size() == 1);
}
