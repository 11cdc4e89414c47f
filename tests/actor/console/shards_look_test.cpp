#include "actors/console/inspector.hpp"
#include "actors/console/reports.hpp"
#include "actors/supervision/supervisor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

// How it can fail: shards of other hosts are asked, or those here are not; one that is silent holds
// up the report; an account becomes too large for a message.

struct records {
  bool shard_is_stuck = false;
  std::vector<caf::response_promise> kept;
};

struct scene : records, test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor terminal = capture();

  scene() {
    office->bind("console/x", 0, terminal);
    directory::snapshot all;
    const auto add = [&](const char* name, const char* host, msg::Role role) {
      auto& e = all[name];
      e.name = name;
      e.host = host;
      e.role = role;
    };
    add("router/0", "h", msg::Role::ROUTER);
    add("router/1", "h", msg::Role::ROUTER);
    add("router/2", "other", msg::Role::ROUTER);
    add("control", "h", msg::Role::CONTROL);
    view->set(std::make_shared<directory::snapshot>(all));
    supervision::supervisor_options o;
    o.name = "root";
    for (const std::string name : {"router/0", "router/1", "router/2"})
      o.children.push_back({name, [this, name](std::uint64_t) -> expected<caf::actor> {
                              return system.spawn([this, name](caf::event_based_actor* self,
                                                               int) { return shard(self, name); },
                                                  0);
                            }});
    o.children.push_back(
        {"control", [this](std::uint64_t) -> expected<caf::actor> {
           return system.spawn(
               [](caf::event_based_actor*, int) -> caf::behavior {
                 return {[](const control::describe_control&) {
                   return control::control_report{{4, 2}, 1'500ms, 1.25, 0.5, {"router/2"}, "no"};
                 }};
               },
               0);
         }});
    auto root = own(supervision::spawn_supervisor(system, std::move(o)));
    console::inspector_options i;
    i.host = "h";
    i.generation = 3;
    i.office = office;
    i.view = view;
    i.roots = [root] { return std::vector<console::tree_root>{{"node/h", root}}; };
    i.assigned = [] {
      return std::make_shared<const control::assignment>(
          control::assignment::make({4, 1}, {"router/0", "router/1"},
                                    {{0, {0}}, {std::uint64_t{1} << 63U, {0, 1}}})
              .value());
    };
    own(console::spawn_inspector(system, std::move(i)));
    run();
  }
  caf::behavior shard(caf::event_based_actor* self, const std::string& name) {
    return {[this, self, name](const control::describe_load&) {
      auto p = self->make_response_promise();
      if (shard_is_stuck && name == "router/1") {
        kept.push_back(p);
        return p;
      }
      control::shard_load l;
      l.shard = name;
      // More than a message holds, were all of them sent.
      for (std::size_t i = 0; i < control::slices_max * 4; ++i) l.ranges.push_back({i, i, 0.5});
      l.misrouted = 7;
      p.deliver(l);
      return p;
    }};
  }
  template <class Look>
  void ask(std::chrono::milliseconds wait, Look look) {
    msg::draft<msg::NodeQuery> d;
    d->setId(77);
    d->setShards();
    office->send({"inspector/h", 0}, {"console/x", 0}, std::move(d).freeze().value());
    advance(wait);
    auto all = take_envelopes<msg::NodeReport>(terminal);
    REQUIRE(all.size() == 1);
    msg::view<msg::NodeReport> in{all[0].second};
    REQUIRE(in->isShards());
    look(in->getShards());
  }
};

}  // namespace

TEST_CASE_METHOD(scene, "a host tells of the shards that are there, and of what it goes by") {
  ask(0ms, [](msg::Shards::Reader in) {
    CHECK(in.getTerm() == 4);
    CHECK(in.getGeneration() == 1);
    REQUIRE(in.getAssigned().size() == 2);
    CHECK(std::string{in.getAssigned()[0].getShard().cStr()} == "router/0");
    CHECK(in.getAssigned()[0].getSlices() == 2);
    CHECK(in.getAssigned()[0].getPart() == Approx(0.75));
    CHECK(in.getAssigned()[1].getPart() == Approx(0.25));
    REQUIRE(in.getHere().size() == 2);
    CHECK(in.getHere()[0].getMisrouted() == 7);
    REQUIRE(in.getHere()[0].getRanges().size() == 1);
    CHECK(in.getHere()[0].getRanges()[0].getLoad() ==
          Approx(0.5 * static_cast<double>(control::slices_max * 4)));
    const auto c = in.getControl();
    CHECK(c.getPresent());
    CHECK(c.getTerm() == 4);
    CHECK(c.getGeneration() == 2);
    CHECK(c.getMadeMs() == 1'500);
    CHECK(c.getImbalance() == 1.25);
    CHECK(c.getChurn() == 0.5);
    REQUIRE(c.getLost().size() == 1);
    CHECK(std::string{c.getProblem().cStr()} == "no");
    CHECK(in.getSilent().size() == 0);
  });
}

TEST_CASE_METHOD(scene,
                 "a shard that does not answer is named, and the others' accounts are told") {
  shard_is_stuck = true;
  ask(console::describe_timeout + 50ms, [](msg::Shards::Reader in) {
    CHECK(in.getHere().size() == 1);
    REQUIRE(in.getSilent().size() == 1);
    CHECK(std::string{in.getSilent()[0].cStr()} == "router/1");
  });
}
