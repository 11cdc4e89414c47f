#include "actors/console/inspector.hpp"
#include "actors/console/reports.hpp"
#include "actors/health/watchdog_actor.hpp"
#include "actors/router/router_actor.hpp"
#include "actors/supervision/supervisor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

using namespace troupe;
using namespace std::chrono_literals;
using lines = std::vector<std::string>;

namespace {

/// The records come first, since actors still write to them while the system ends.
struct records {
  bool hub_is_stuck = false;
  std::vector<caf::response_promise> kept;
  caf::actor root;
};

struct scene : records, test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor terminal = capture();
  caf::actor engine = capture();

  scene() {
    spdlog::set_level(spdlog::level::off);
    office->bind("console/x", 0, terminal);
    office->bind("both/p/h.0", 7, engine);
    directory::snapshot all;
    auto& e = all["both/p/h.0"];
    e.name = "both/p/h.0";
    e.generation = 7;
    e.host = "h";
    e.model = "m";
    e.state = msg::EntryState::READY;
    all["both/p/other.0"] = e;
    all["both/p/other.0"].host = "other";
    all["router/0"].host = "h";
    all["router/0"].role = msg::Role::ROUTER;
    view->set(std::make_shared<directory::snapshot>(all));
    supervision::supervisor_options o;
    o.name = "root";
    o.children.push_back({"requests/h", [this](std::uint64_t) -> expected<caf::actor> {
                            return system.spawn(
                                [this](caf::event_based_actor* self, int) { return hub(self); }, 0);
                          }});
    o.children.push_back(
        {"router/0", [this](std::uint64_t) -> expected<caf::actor> {
           return system.spawn(
               [](caf::event_based_actor* self, int) -> caf::behavior {
                 self->set_default_handler(caf::drop);
                 return {[](const router::describe_leases&) {
                   return router::leases_report{{{5, "h", 1, "", "both/p/h.0", 30}}};
                 }};
               },
               0);
         }});
    root = own(supervision::spawn_supervisor(system, std::move(o)));
    console::inspector_options i;
    i.host = "h";
    i.generation = 3;
    i.office = office;
    i.view = view;
    i.roots = [this] { return std::vector<console::tree_root>{{"node/h", root}}; };
    own(console::spawn_inspector(system, std::move(i)));
    run();
  }
  caf::behavior hub(caf::event_based_actor* self) {
    self->set_default_handler(caf::drop);
    return {[this, self](const request::describe_requests&) {
              auto p = self->make_response_promise();
              if (hub_is_stuck) {
                kept.push_back(p);
                return p;
              }
              request::requests_report r;
              r.generation = 2;
              r.requests.push_back({{0, 9}, "ext", "m", 1'500ms, 100});
              r.jobs[{"both/p/h.0", 7}] = {{{0, 9}, 0, 1}};
              r.leases = {{"router/0", 5}};
              r.tickets = 1;
              r.held_bytes = 100;
              p.deliver(r);
              return p;
            },
            [](const request::describe_timeline& x) { return "{" + x.external_id + "}"; }};
  }
  template <class Fill>
  void ask(Fill fill) {
    msg::draft<msg::NodeQuery> d;
    d->setId(77);
    fill(*d);
    office->send({"inspector/h", 0}, {"console/x", 0}, std::move(d).freeze().value());
    run();
  }
  /// The one report that came; calls `look(report)`.
  template <class Look>
  void told(Look look) {
    auto all = take_envelopes<msg::NodeReport>(terminal);
    REQUIRE(all.size() == 1);
    msg::view<msg::NodeReport> in{all[0].second};
    CHECK(in->getId() == 77);
    CHECK(std::string{in->getHost().cStr()} == "h");
    look(*in);
  }
  std::string failure() {
    std::string code;
    told([&](msg::NodeReport::Reader in) {
      REQUIRE(in.isFailure());
      code = in.getFailure().getCode().cStr();
    });
    return code;
  }
  void audit(std::uint32_t jobs = 1) {
    msg::draft<msg::Audit> d;
    d->setWorker("both/p/h.0");
    d->setGeneration(7);
    d->setJobs(jobs);
    msg::write(d->initKeys(1)[0], msg::job_key{{0, 9}, 0, 1});
    d->setKeyCount(1);
    office->send({"inspector/h", 0}, {"both/p/h.0", 7}, std::move(d).freeze().value());
    run();
  }
};

}  // namespace

TEST_CASE_METHOD(scene,
                 "the books of a host are those of its hub, its router and its own engines") {
  ask([](msg::NodeQuery::Builder q) { q.setBooks(); });
  CHECK(take_envelopes<msg::EngineCommand>(engine).size() == 1);
  CHECK(take_envelopes<msg::NodeReport>(terminal).empty());
  audit();
  told([](msg::NodeReport::Reader in) {
    const auto b = console::read(in.getBooks(), "h");
    CHECK(b.has_hub);
    CHECK(b.shards == std::vector<std::string>{"router/0"});
    CHECK(b.silent.empty());
    CHECK(b.engines.size() == 1);
    CHECK(b.hub.left_out == 0);
    CHECK(console::sum({b}).requests == 1);
    CHECK(console::sum({b}).prompt_bytes == 100);
    CHECK(console::check_books({b}).empty());
  });
  advance(10s);
  audit();  // nobody waits for it
  CHECK(take_envelopes<msg::NodeReport>(terminal).empty());
}

TEST_CASE("the books of a version that knew one router only are router/0's") {
  msg::draft<msg::Books> d;
  auto hub = d->initHub();
  hub.setPresent(true);
  hub.setRequestCount(1);
  hub.initRequests(1);
  hub.setLeaseCount(1);
  hub.initLeases(1).set(0, 5);
  auto router = d->initRouter();
  router.setPresent(true);
  router.setLeaseCount(1);
  auto lease = router.initLeases(1)[0];
  lease.setId(5);
  lease.setHost("h");
  const auto e = std::move(d).freeze().value();
  const auto b = console::read(*msg::view<msg::Books>{e}, "h");
  CHECK(b.shards == lines{"router/0"});
  CHECK(console::check_books({b}) == lines{});
}

TEST_CASE_METHOD(scene, "who doesn't tell his books in time is named, and the others' are told") {
  hub_is_stuck = true;
  ask([](msg::NodeQuery::Builder q) { q.setBooks(); });
  advance(console::audit_timeout + 50ms);
  told([](msg::NodeReport::Reader in) {
    const auto b = console::read(in.getBooks(), "h");
    CHECK_FALSE(b.has_hub);
    CHECK(b.shards == std::vector<std::string>{"router/0"});
    CHECK(b.silent == lines{"requests/h", "both/p/h.0"});
  });
}

TEST_CASE_METHOD(scene, "an audit serves all who wait for it") {
  ask([](msg::NodeQuery::Builder q) { q.setBooks(); });
  ask([](msg::NodeQuery::Builder q) { q.setBooks(); });
  audit();  // for both
  CHECK(take_envelopes<msg::NodeReport>(terminal).size() == 2);
}

TEST_CASE_METHOD(scene, "other questions, and actors that aren't there") {
  ask([](msg::NodeQuery::Builder q) { q.setTree(); });
  told([](msg::NodeReport::Reader in) {
    REQUIRE(in.getTree().size() == 1);
    CHECK(in.getTree()[0].getChildren().size() == 2);
  });
  ask([](msg::NodeQuery::Builder q) { q.setDirectory(); });
  told([](msg::NodeReport::Reader in) { CHECK(in.getDirectory().size() == 3); });
  ask([](msg::NodeQuery::Builder q) { q.setRequests(); });
  told([](msg::NodeReport::Reader in) {
    REQUIRE(in.getRequests().size() == 1);
    CHECK(std::string{in.getRequests()[0].getExternalId().cStr()} == "ext");
    CHECK(in.getRequests()[0].getAgeMs() == 1'500);
  });
  ask([](msg::NodeQuery::Builder q) { q.setTimeline("id"); });
  told([](msg::NodeReport::Reader in) {
    CHECK(std::string{in.getTimelineJson().cStr()} == "{id}");
  });
  ask([](msg::NodeQuery::Builder q) { q.setHealth(); });
  CHECK(failure() == "actor_silent");  // there is no watchdog
  ask([](msg::NodeQuery::Builder q) { q.setNone(); });
  CHECK(failure() == "unknown_query");
  hub_is_stuck = true;
  ask([](msg::NodeQuery::Builder q) { q.setRequests(); });
  advance(console::describe_timeout + 50ms);
  CHECK(failure() == "actor_silent");
}

TEST_CASE_METHOD(scene, "queries above the limit fail at once, and there is room again") {
  hub_is_stuck = true;
  for (std::size_t i = 0; i < console::queries_max; ++i)
    ask([](msg::NodeQuery::Builder q) { q.setRequests(); });
  ask([](msg::NodeQuery::Builder q) { q.setRequests(); });
  CHECK(failure() == "busy");
  advance(console::describe_timeout + 50ms);
  CHECK(take_envelopes<msg::NodeReport>(terminal).size() == console::queries_max);
  ask([](msg::NodeQuery::Builder q) { q.setTree(); });
  told([](msg::NodeReport::Reader in) { CHECK(in.isTree()); });
}
