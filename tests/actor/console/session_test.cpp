#include "actors/console/frames.hpp"
#include "actors/console/inspector.hpp"
#include "actors/console/session.hpp"
#include "actors/drain/drain_actor.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

using namespace troupe;
using namespace std::chrono_literals;
using lines = std::vector<std::string>;

namespace {

/// The records come first, since actors still write to them while the system ends.
struct records {
  caf::actor session;
  bool ended = false;
};

struct scene : records, test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor directory = capture();
  caf::actor port = capture();
  caf::actor h0 = capture();
  caf::actor h1 = capture();
  caf::actor drainer = capture();
  std::uint32_t next_id = 1;

  explicit scene(trust::role as = trust::role::operator_) {
    spdlog::set_level(spdlog::level::off);
    office->bind("inspector/h0", 0, h0);
    office->bind("inspector/h1", 0, h1);
    directory::snapshot all;
    for (const auto* name : {"inspector/h0", "inspector/h1"}) all[name].name = name;
    view->set(std::make_shared<directory::snapshot>(all));
    console::session_options o;
    o.name = "console/h0/1";
    o.generation = 5;
    o.hosts = {"h0", "h1", "h2"};
    o.office = office;
    o.directory = directory;
    o.view = view;
    o.drain = [this] { return drainer; };
    o.port = port;
    o.as = as;
    o.person = "bob";
    own(system.spawn(
        [this](caf::event_based_actor* self, const console::session_options& how) -> caf::behavior {
          self->set_down_handler([this](caf::down_msg&) { ended = true; });
          session = console::spawn_session(self, how);
          return {[](int) {}};
        },
        o));
    run();
    own(session);
  }

  void ask(const std::vector<std::string>& hosts = {}) {
    send([&](msg::ConsoleRequest::Builder r) {
      auto list = r.initHosts(static_cast<unsigned>(hosts.size()));
      for (unsigned i = 0; i < list.size(); ++i) list.set(i, hosts[i]);
      r.initQuery().setTree();
    });
  }
  template <class Fill>
  void send(Fill fill) {
    msg::draft<msg::ConsoleRequest> d;
    d->setId(next_id++);
    d->setProtocol(console::protocol);
    fill(*d);
    caf::anon_send(session, console::from_terminal{std::move(d).freeze().value().body});
    run();
  }
  /// What an inspector was asked: the number of its query; 0: nothing.
  std::uint64_t asked(const caf::actor& inspector) {
    auto all = take_envelopes<msg::NodeQuery>(inspector);
    if (all.empty()) return 0;
    REQUIRE(all.size() == 1);
    CHECK(all[0].first.from == msg::address{"console/h0/1", 5});
    msg::view<msg::NodeQuery> in{all[0].second};
    CHECK(in->isTree());
    return in->getId();
  }
  void answer(const std::string& host, std::uint64_t query) {
    msg::draft<msg::NodeReport> d;
    d->setId(query);
    d->setHost(host);
    d->initTree(1)[0].setName("root of " + host);
    office->send({"console/h0/1", 0}, {"inspector/" + host, 0}, std::move(d).freeze().value());
    run();
  }
  /// What the terminal got: "1 report h0", "1 end h2: ...", "1 failure code".
  lines got() {
    lines out;
    for (const auto& x : take<console::to_terminal>(port)) {
      msg::view<msg::ConsoleReply> in{x.what};
      auto line = std::to_string(in->getId());
      switch (in->which()) {
      case msg::ConsoleReply::REPORT:
        CHECK(in->getReport().getTree().size() == 1);
        line += std::string{" report "} + in->getReport().getHost().cStr();
        break;
      case msg::ConsoleReply::END:
        line += " end";
        for (auto s : in->getEnd())
          line += std::string{" "} + s.getHost().cStr() + ": " + s.getReason().cStr() + ";";
        break;
      case msg::ConsoleReply::FAILURE:
        line += std::string{" failure "} + in->getFailure().getCode().cStr();
        break;
      case msg::ConsoleReply::PROGRESS:
        line += " progress";
        for (auto p : in->getProgress())
          line += std::string{" "} + p.getEngine().cStr() + " " + p.getPhase().cStr();
        break;
      }
      out.push_back(line);
    }
    return out;
  }
};

}  // namespace

TEST_CASE_METHOD(scene, "a session is in the directory while it lasts") {
  const auto set = take<directory::set_entry>(directory);
  REQUIRE(set.size() == 1);
  CHECK(set[0].value.name == "console/h0/1");
  CHECK(set[0].value.role == msg::Role::CONSOLE);
  CHECK(office->knows("console/h0/1"));
  caf::anon_send_exit(port, caf::exit_reason::kill);
  run();
  CHECK(ended);
  CHECK_FALSE(office->knows("console/h0/1"));
  const auto removed = take<directory::remove_entry>(directory);
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].generation == 5);
}

TEST_CASE_METHOD(scene,
                 "all hosts are asked, reports are passed on as they come, and the silent are "
                 "named") {
  ask();
  const auto first = asked(h0);
  CHECK(first > 0);
  CHECK(asked(h1) == first);
  CHECK(got().empty());
  answer("h0", first);
  CHECK(got() == lines{"1 report h0"});
  answer("h0", first);  // twice is once
  CHECK(got().empty());
  advance(console::ask_again_interval + 50ms);
  CHECK(asked(h0) == 0);
  CHECK(asked(h1) == first);  // whose answer may have had no way to a session that was new
  advance(console::answer_timeout - console::ask_again_interval);
  CHECK(take_envelopes<msg::NodeQuery>(h1).size() == 3);
  CHECK(got() == lines{"1 end h1: does not answer; h2: there is no link to it;"});
  answer("h1", first);  // too late
  CHECK(got().empty());
  ask({"h1"});
  CHECK(asked(h0) == 0);
  const auto second = asked(h1);
  answer("h1", first);  // of the first question
  CHECK(got().empty());
  answer("h1", second);
  CHECK(got() == lines{"2 report h1", "2 end"});
  advance(10s);
  CHECK(got().empty());
}

TEST_CASE_METHOD(scene, "requests sent ahead are served in order, up to a limit") {
  ask({"h0"});
  ask({"h1"});
  const auto first = asked(h0);
  CHECK(asked(h1) == 0);
  answer("h0", first);
  CHECK(got() == lines{"1 report h0", "1 end"});
  answer("h1", asked(h1));
  CHECK(got() == lines{"2 report h1", "2 end"});
  ask({"h0"});
  for (std::size_t i = 0; i < console::requests_ahead_max; ++i) ask({"h0"});
  CHECK_FALSE(ended);
  ask({"h0"});
  CHECK(ended);
}

TEST_CASE_METHOD(scene, "what cannot be served is a failure, what cannot be read the end") {
  ask({"h9"});
  CHECK(got() == lines{"1 failure no_such_host"});
  send([](msg::ConsoleRequest::Builder r) { r.setProtocol(console::protocol + 1); });
  CHECK(got() == lines{"2 failure other_protocol"});
  ask({"h2"});
  CHECK(got() == lines{"3 end h2: there is no link to it;"});
  CHECK_FALSE(ended);
  caf::anon_send(session, console::from_terminal{test::unreadable<msg::ConsoleRequest>().body});
  run();
  CHECK(ended);
}

TEST_CASE_METHOD(scene,
                 "an order goes to the node's drain actor, and its progress to the terminal") {
  const auto order = [this] {
    send([](msg::ConsoleRequest::Builder r) {
      auto o = r.initOrder();
      o.setKind(msg::ConsoleOrder::TargetKind::POOL);
      o.setTarget("p");
      o.setAtOnce(1);
      auto d = o.initDrain();
      d.setWithinMs(3'000);
      d.setMoveAfterMs(1'000);
      d.setThen(msg::DrainEnd::RESTART);
    });
    auto all = take<drain::drain_order>(drainer);
    REQUIRE(all.size() == 1);
    return all[0];
  };
  const auto tell = [this](const drain::drain_order& o, msg::DrainPhase phase, bool over) {
    drain::engine_progress e;
    e.engine = "e";
    e.ordered = e.answered = true;
    e.phase = phase;
    e.over = over;
    caf::anon_send(session, drain::drain_progress{o.id, {e}, over, {}});
    run();
  };
  const auto o = order();
  CHECK(o.at.what == drain::target::kind::pool);
  CHECK(o.at.name == "p");
  CHECK(o.at_once == 1);
  CHECK(o.within == 3s);
  CHECK(o.move_after == 1s);
  CHECK(o.then == msg::DrainEnd::RESTART);
  CHECK_FALSE(o.undrain);
  tell(o, msg::DrainPhase::DRAINING, false);
  CHECK(got() == lines{"1 progress e draining"});
  advance(console::progress_interval + 50ms);  // a terminal hears that it still goes on
  CHECK(got() == lines{"1 progress e draining"});
  tell(o, msg::DrainPhase::SERVING, true);
  CHECK(got() == lines{"1 progress e serving", "1 end"});
  advance(10s);
  CHECK(got().empty());

  const auto second = order();
  tell(o, msg::DrainPhase::SERVING, true);  // of the first
  CHECK(got().empty());
  caf::anon_send(session, drain::drain_progress{second.id, {}, true, "too many orders"});
  run();
  CHECK(got() == lines{"2 failure refused"});

  order();
  caf::anon_send_exit(drainer, caf::exit_reason::kill);
  run();
  CHECK(got() == lines{"3 failure order_unwatched"});
  CHECK_FALSE(ended);
  drainer = nullptr;
  send([](msg::ConsoleRequest::Builder r) { r.initOrder().setUndrain(); });
  CHECK(got() == lines{"4 failure not_now"});
}

struct viewers_scene : scene {
  viewers_scene() : scene(trust::role::viewer) {}
};

TEST_CASE_METHOD(viewers_scene, "a viewer looks, and gives no orders") {
  send([](msg::ConsoleRequest::Builder r) {
    auto o = r.initOrder();
    o.setTarget("p");
    o.initDrain();
  });
  CHECK(got() == lines{"1 failure not_allowed"});
  CHECK(take<drain::drain_order>(drainer).empty());
  send([](msg::ConsoleRequest::Builder r) { r.initOrder().setUndrain(); });
  CHECK(got() == lines{"2 failure not_allowed"});
  // The session goes on.
  ask({"h0"});
  answer("h0", asked(h0));
  CHECK(got() == lines{"3 report h0", "3 end"});
  CHECK_FALSE(ended);
}

TEST_CASE("having nodes reload their cluster files is an operator's order", "[console]") {
  for (const auto as : {trust::role::viewer, trust::role::operator_}) {
    scene s{as};
    s.send([](msg::ConsoleRequest::Builder r) {
      auto reload = r.initQuery().initReload();
      reload.setApply(true);
      reload.setDigest("abc");
    });
    const auto asked = s.take_envelopes<msg::NodeQuery>(s.h0);
    if (as == trust::role::viewer) {
      CHECK(s.got() == lines{"1 failure not_allowed"});
      CHECK(asked.empty());
      continue;
    }
    REQUIRE(asked.size() == 1);
    msg::view<msg::NodeQuery> in{asked[0].second};
    REQUIRE(in->isReload());
    CHECK(in->getReload().getApply());
    CHECK(std::string{in->getReload().getDigest().cStr()} == "abc");
  }
}
