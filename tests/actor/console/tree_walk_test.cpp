#include "actors/console/tree_walk.hpp"
#include "actors/supervision/supervisor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <map>
#include <optional>

using namespace troupe;
using namespace std::chrono_literals;
using console::tree_node;

namespace {

/// The records come first, since actors still write to them while the system ends.
struct records {
  std::map<std::string, caf::actor> handles;
  std::vector<caf::response_promise> kept;
  std::optional<std::vector<tree_node>> found;
  int times = 0;
};

struct scene : records, test::deterministic_system {
  scene() { spdlog::set_level(spdlog::level::off); }

  supervision::child_spec child(
      const std::string& id, const std::string& kind,
      supervision::restart_kind restart = supervision::restart_kind::permanent) {
    return {id,
            [this, id, kind](std::uint64_t) -> expected<caf::actor> {
              return handles[id] = spawn(kind);
            },
            restart};
  }
  caf::actor spawn(const std::string& kind) {
    return system.spawn(
        [this](caf::event_based_actor* self, const std::string& what) -> caf::behavior {
          self->set_default_handler(caf::drop);
          if (what == "mute") return {[](int) {}};
          if (what == "stuck")
            return {[this, self](const supervision::describe_actor&) {
              kept.push_back(self->make_response_promise());
              return kept.back();
            }};
          return {[](int) {}, supervision::answers_for_itself(self, [] {
                    return supervision::actor_facts{{"pid", "7"}};
                  })};
        },
        kind);
  }
  caf::actor supervisor(std::vector<supervision::child_spec> children) {
    supervision::supervisor_options o;
    o.name = "root";
    o.limits = {10, 60s, 10ms, 10ms};
    o.children = std::move(children);
    return own(supervision::spawn_supervisor(system, std::move(o)));
  }
  void walk(std::vector<console::tree_root> roots) {
    own(system.spawn(
        [this](caf::event_based_actor* self,
               const std::vector<console::tree_root>& all) -> caf::behavior {
          console::walk_tree(self, all, [this](std::vector<tree_node> nodes) {
            found = std::move(nodes);
            ++times;
          });
          return {[](int) {}};
        },
        std::move(roots)));
    run();
  }
  const tree_node& at(const std::vector<tree_node>& nodes, const std::string& name) {
    for (const auto& n : nodes)
      if (n.child.id == name) return n;
    FAIL("no " << name);
    return nodes.front();
  }
};

using condition = supervision::child_report::condition;

}  // namespace

TEST_CASE_METHOD(scene, "a tree is told with everybody in it, also who cannot answer") {
  auto inner = [this](std::uint64_t) -> expected<caf::actor> {
    return supervisor({child("leaf", "plain")});
  };
  auto root = supervisor({child("plain", "plain"),
                          {"inner", inner},
                          child("mute", "mute"),
                          child("stuck", "stuck"),
                          child("short", "plain", supervision::restart_kind::temporary)});
  run();
  caf::anon_send_exit(handles["short"], caf::exit_reason::kill);
  caf::anon_send_exit(handles["plain"], caf::exit_reason::kill);
  advance(100ms);
  walk({{"root", root}, {"gone", nullptr}});
  CHECK_FALSE(found);  // one is waited for
  advance(console::describe_timeout + 50ms);
  REQUIRE(found);
  CHECK(times == 1);
  REQUIRE(found->size() == 2);
  CHECK((*found)[1].child.id == "gone");
  CHECK((*found)[1].child.now == condition::ended);
  const auto& tree = (*found)[0];
  CHECK(tree.mailbox == std::size_t{0});
  REQUIRE(tree.children.size() == 5);
  const auto& plain = at(tree.children, "plain");
  CHECK(plain.child.now == condition::running);
  CHECK(plain.child.restarts == 1);
  CHECK_THAT(plain.child.last_end, Catch::Contains("kill"));
  CHECK(plain.mailbox == std::size_t{0});
  CHECK(plain.facts == supervision::actor_facts{{"pid", "7"}});
  CHECK(at(at(tree.children, "inner").children, "leaf").facts.size() == 1);
  CHECK(at(tree.children, "mute").silent == "says nothing of itself");
  CHECK_FALSE(at(tree.children, "mute").mailbox);
  CHECK(at(tree.children, "stuck").silent == "does not answer");
  CHECK(at(tree.children, "short").child.now == condition::ended);
}

TEST_CASE_METHOD(scene, "an actor counts what waits behind the question") {
  auto busy = own(spawn("plain"));
  run();
  walk({});
  CHECK(times == 1);
  CHECK(found->empty());
  // Nothing runs between these: they are in its mailbox together.
  caf::anon_send(busy, 1);
  own(system.spawn(
      [this](caf::event_based_actor* self, const caf::actor& who) -> caf::behavior {
        console::walk_tree(self, {{"busy", who}},
                           [this](std::vector<tree_node> nodes) { found = std::move(nodes); });
        for (int i = 0; i < 3; ++i) self->send(who, i);
        return {[](int) {}};
      },
      busy));
  run();
  REQUIRE(found->size() == 1);
  CHECK((*found)[0].mailbox == std::size_t{3});
}
