#include "actors/health/watchdog_actor.hpp"
#include "messages/drain.capnp.h"
#include "messages/engine.capnp.h"
#include "tests/actor/launcher/scene.hpp"

using namespace troupe;
using namespace troupe::launcher;
using namespace troupe::launcher::testing;
using phase = msg::DrainPhase;

namespace {

struct drain_scene : scene {
  caf::actor orderer = capture();
  std::vector<std::string> commands;  ///< that the engine has had since the last time
  std::uint64_t held = 0;             ///< number of the order that it knows of
  std::string why;                    ///< code of the last failure that was heard

  explicit drain_scene(supervision::restart_limits limits = {3, 60s, 100ms, 100ms})
      : scene(limits) {
    office->bind("drain/h1", 0, orderer);
  }

  void order(msg::DrainEnd then, std::chrono::milliseconds within = 10s,
             std::chrono::milliseconds move_after = 4s, std::uint64_t id = 77) {
    msg::draft<msg::DrainOrder> d;
    d->setId(id);
    d->setReplyTo("drain/h1");
    auto o = d->initDrain();
    o.setWithinMs(static_cast<std::uint32_t>(within.count()));
    o.setMoveAfterMs(static_cast<std::uint32_t>(move_after.count()));
    o.setThen(then);
    post(std::move(d));
  }
  void undrain() {
    msg::draft<msg::DrainOrder> d;
    d->setId(78);
    d->setReplyTo("drain/h1");
    d->setUndrain();
    post(std::move(d));
  }
  void post(msg::draft<msg::DrainOrder>&& d) {
    office->send({"launcher/p/h0.0", 0}, {"drain/h1", 0}, std::move(d).freeze().value());
    run();
  }
  void hear() {
    for (auto& [from, e] : take_envelopes<msg::EngineCommand>(worker)) {
      msg::view<msg::EngineCommand> in{e};
      held = in->isHold() ? in->getHold().getNumber() : in->isRelease() ? 0 : held;
      if (in->isHold())
        commands.push_back("hold " + std::to_string(in->getHold().getWithinMs()) + " " +
                           std::to_string(in->getHold().getMoveAfterMs()));
      else
        commands.emplace_back(in->isRelease() ? "release" : "something else");
    }
  }
  /// What the engine was told since the last time: "hold 10000 4000", "release".
  std::vector<std::string> told() {
    hear();
    return std::exchange(commands, {});
  }
  /// By an engine that has had what it was told.
  void tell_report(std::uint64_t of, bool idle, std::uint32_t jobs = 0) {
    hear();
    scene::tell_report(of, idle, jobs, held);
  }
  /// What the orderer heard since the last time: "77 draining 3", "77 drained 0 over".
  std::vector<std::string> heard() {
    std::vector<std::string> all;
    why.clear();
    for (auto& [from, e] : take_envelopes<msg::DrainStatus>(orderer)) {
      msg::view<msg::DrainStatus> in{e};
      CHECK(std::string{in->getEngine().cStr()} == "decode/p/h0.0");
      const std::vector<std::string> names = {"refused", "draining",   "drained",
                                              "stopped", "restarting", "serving"};
      all.push_back(std::to_string(in->getId()) + " " +
                    names.at(static_cast<std::size_t>(in->getPhase())) + " " +
                    std::to_string(in->getJobsLeft()) + (in->getOver() ? " over" : ""));
      if (in->hasFailure()) why = in->getFailure().getCode().cStr();
    }
    return all;
  }
};

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("the node's end: the engine is told, announced, and stopped as soon as it is idle") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  caf::anon_send(s.launcher, stop_engine{10s, 2s, s.asker});
  s.run();
  CHECK(s.told() == lines{"hold 10000 0"});
  CHECK(s.last_announced().state == state::DRAINING);
  CHECK(s.signals.empty());
  // Its own word "ready" is from before it heard.
  s.tell_status(state::READY, 101);
  CHECK(s.last_announced().state == state::DRAINING);
  SECTION("idle") {
    s.tell_report(101, false, 2);
    CHECK(s.signals.empty());
    s.tell_report(101, true);
    CHECK(s.signals == std::vector<int>{SIGTERM});
    s.child_ends(0);
    CHECK(s.take<engine_stopped>(s.asker).size() == 1);
    CHECK(s.launcher_ended());
  }
  SECTION("busy until the end") {
    s.advance(11900ms);
    CHECK(s.signals.empty());
    s.advance(200ms);
    CHECK(s.signals == std::vector<int>{SIGTERM});
  }
  SECTION("hurried") {
    caf::anon_send(s.launcher, stop_engine{0ms, 1s, s.asker});
    s.run();
    CHECK(s.signals == std::vector<int>{SIGTERM});
  }
  SECTION("an order meanwhile is refused") {
    s.order(msg::DrainEnd::RESTART);
    CHECK(s.heard() == lines{"77 refused 0 over"});
  }
}

TEST_CASE("an engine is drained, kept, and taken back") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  s.order(msg::DrainEnd::KEEP);
  CHECK(s.told() == lines{"hold 10000 4000"});
  CHECK(s.heard() == lines{"77 draining 0"});
  CHECK(s.last_announced().state == state::DRAINING);
  s.tell_report(101, false, 3);
  CHECK(s.heard() == lines{"77 draining 3"});
  CHECK(s.last_announced().detail == "draining, 3 jobs left");
  s.tell_report(101, false, 3);
  CHECK(s.heard().empty());
  s.tell_status(state::DRAINING, 101);  // it has heard; the account stays
  CHECK(s.last_announced().detail == "draining, 3 jobs left");
  s.tell_report(101, true);
  CHECK(s.heard() == lines{"77 drained 0 over"});
  CHECK(s.last_announced().detail == "drained");
  s.advance(60s);
  CHECK(s.signals.empty());
  CHECK(s.announced().empty());

  s.undrain();
  CHECK(s.told() == lines{"release"});
  s.tell_status(state::READY, 101);
  CHECK(s.last_announced().state == state::READY);
  CHECK(s.heard() == lines{"78 draining 0", "78 serving 0 over"});
}

TEST_CASE("a kept engine that crashes, or that has not loaded yet, comes back drained") {
  drain_scene s;
  SECTION("a crash while it drains") {
    s.tell_status(state::READY, 101);
    s.order(msg::DrainEnd::KEEP);
    s.child_ends(SIGSEGV, true);
    CHECK(s.heard() == lines{"77 draining 0", "77 drained 0 over"});
    s.advance(1s);
    CHECK(s.starts.size() == 2);
    (void)s.told();
  }
  SECTION("an order while it loads") {
    s.order(msg::DrainEnd::KEEP);
    CHECK(s.heard() == lines{"77 draining 0", "77 drained 0 over"});
    CHECK(s.signals.empty());
  }
  s.tell_status(state::READY, s.generation);
  CHECK(s.told().size() == 1);
  CHECK(s.last_announced().state == state::DRAINING);
}

TEST_CASE("an engine is drained and stopped; undrain starts it again") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  s.order(msg::DrainEnd::STOP);
  s.tell_report(101, true);
  CHECK(s.signals == std::vector<int>{SIGTERM});
  CHECK(s.heard() == lines{"77 draining 0", "77 drained 0"});
  s.child_ends(0);
  CHECK(s.heard() == lines{"77 stopped 0 over"});
  CHECK(s.last_announced().state == state::STOPPED);
  s.advance(60s);
  CHECK(s.starts.size() == 1);
  CHECK_FALSE(s.launcher_ended());
  s.undrain();
  CHECK(s.starts.size() == 2);
  CHECK(s.heard() == lines{"78 restarting 0"});  // at once, however long it loads
  s.tell_status(state::READY, 102);
  CHECK(s.heard() == lines{"78 serving 0 over"});
  CHECK(s.last_announced().state == state::READY);
}

TEST_CASE("the next incarnation of a launcher keeps to what was ordered of the lost one") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  SECTION("kept") {
    s.order(msg::DrainEnd::KEEP);
    s.restart_launcher();
    CHECK(s.alive);
    REQUIRE(s.starts.size() == 2);
    (void)s.told();
    s.tell_status(state::READY, s.generation);
    CHECK(s.told() == lines{"hold 0 0"});
    const auto e = s.last_announced();
    CHECK(e.state == state::DRAINING);
    CHECK(e.detail == "drained");
  }
  SECTION("stopped") {
    s.order(msg::DrainEnd::STOP);
    s.restart_launcher();
    CHECK_FALSE(s.alive);
    CHECK(s.starts.size() == 1);
    const auto e = s.last_announced();
    CHECK(e.state == state::STOPPED);
    CHECK(e.generation > 101);
    s.advance(60s);
    CHECK(s.starts.size() == 1);
  }
  SECTION("taken back") {
    s.order(msg::DrainEnd::KEEP);
    s.undrain();
    s.restart_launcher();
    s.tell_status(state::READY, s.generation);
    CHECK(s.last_announced().state == state::READY);
    return;
  }
  SECTION("to be restarted, which it was by its launcher's loss") {
    s.order(msg::DrainEnd::RESTART);
    s.restart_launcher();
    s.tell_status(state::READY, s.generation);
    CHECK(s.last_announced().state == state::READY);
    return;
  }
  (void)s.heard();
  s.undrain();
  s.tell_status(state::READY, s.generation);
  CHECK(s.last_announced().state == state::READY);
  CHECK(s.heard().back() == "78 serving 0 over");
}

TEST_CASE("undrain while the process is being ended: it is started again, as nobody's crash") {
  drain_scene s({0, 60s, 100ms, 100ms});
  s.tell_status(state::READY, 101);
  s.order(msg::DrainEnd::STOP);
  s.tell_report(101, true);
  s.undrain();
  s.child_ends(0);
  REQUIRE(s.starts.size() == 2);
  s.tell_status(state::READY, 102);
  CHECK(s.last_announced().state == state::READY);
}

TEST_CASE("a restart by order counts as no crash, and says when the new process serves") {
  drain_scene s({0, 60s, 100ms, 100ms});  // one crash and it is given up
  s.tell_status(state::READY, 101);
  s.order(msg::DrainEnd::RESTART);
  s.tell_report(101, true);
  s.child_ends(0);
  CHECK(s.heard() == lines{"77 draining 0", "77 drained 0", "77 restarting 0"});
  REQUIRE(s.starts.size() == 2);
  s.tell_status(state::READY, 102);
  CHECK(s.heard() == lines{"77 serving 0 over"});
  CHECK(s.last_announced().state == state::READY);
  CHECK(s.told() == lines{"hold 10000 4000"});  // only the old one
}

TEST_CASE("a restart of an engine that hangs on to its jobs, or was given up") {
  drain_scene s({0, 60s, 100ms, 100ms});
  SECTION("busy beyond its time") {
    s.tell_status(state::READY, 101);
    s.order(msg::DrainEnd::RESTART, 1s);
    s.tell_report(101, false, 1);
    s.advance(3100ms);
    CHECK(s.signals == std::vector<int>{SIGTERM});
    s.advance(5100ms);
    CHECK(s.signals == std::vector<int>{SIGTERM, SIGKILL});
    s.child_ends(SIGKILL, true);
    CHECK(s.starts.size() == 2);
  }
  SECTION("given up: an order is another chance") {
    s.child_ends(1);
    CHECK(s.last_announced().state == state::FAILED);
    s.order(msg::DrainEnd::RESTART);
    REQUIRE(s.starts.size() == 2);
    s.child_ends(1);
    CHECK(s.heard().back() == "77 refused 0 over");
  }
}

TEST_CASE("a stop during the back-off of a crash holds") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  s.child_ends(1);
  s.order(msg::DrainEnd::STOP);
  CHECK(s.last_announced().state == state::STOPPED);
  s.advance(10s);
  CHECK(s.starts.size() == 1);
}

TEST_CASE("an engine that did not hear that it may serve again is told once more") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  s.order(msg::DrainEnd::KEEP);
  s.undrain();
  (void)s.told();
  s.tell_status(state::DRAINING, 101);
  CHECK(s.told() == lines{"release"});
}

TEST_CASE("a later order replaces an earlier one") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  s.order(msg::DrainEnd::STOP, 1s);
  s.tell_report(101, false, 1);
  s.order(msg::DrainEnd::KEEP, 60s, 30s);
  CHECK(s.told() == lines{"hold 1000 4000", "hold 60000 30000"});
  s.advance(20s);
  CHECK(s.signals.empty());
  s.tell_report(101, true);
  CHECK(s.heard().back() == "77 drained 0 over");
  CHECK(s.signals.empty());
}

TEST_CASE("whoever ordered what is replaced hears so at once, and once") {
  drain_scene s;
  const auto replaced_by = [&](const lines& expected, const char* code = "replaced") {
    const auto all = s.heard();
    CHECK(all == expected);
    CHECK(s.why == code);
  };
  s.tell_status(state::READY, 101);
  SECTION("a drain by an undrain") {
    s.order(msg::DrainEnd::STOP);
    (void)s.heard();
    s.undrain();
    replaced_by({"77 refused 0 over", "78 draining 0"});
  }
  SECTION("a drain by another") {
    s.order(msg::DrainEnd::KEEP);
    (void)s.heard();
    s.order(msg::DrainEnd::STOP, 10s, 4s, 79);
    replaced_by({"77 refused 0 over", "79 draining 0"});
  }
  SECTION("a restart whose new process loads") {
    s.order(msg::DrainEnd::RESTART);
    s.tell_report(101, true);
    s.child_ends(0);
    (void)s.heard();
    s.order(msg::DrainEnd::RESTART, 10s, 4s, 79);
    replaced_by({"77 refused 0 over", "79 draining 0", "79 drained 0"});
  }
  SECTION("an undrain of an engine that loads") {
    s.child_ends(1);
    s.undrain();
    CHECK(s.heard() == lines{"78 restarting 0"});
    s.order(msg::DrainEnd::KEEP, 10s, 4s, 79);
    replaced_by({"78 refused 0 over", "79 draining 0", "79 drained 0 over"});
  }
  SECTION("by its node's end") {
    s.order(msg::DrainEnd::KEEP);
    (void)s.heard();
    caf::anon_send(s.launcher, stop_engine{10s, 2s, s.asker});
    s.run();
    replaced_by({"77 refused 0 over"}, "node_stopping");
  }
  SECTION("but not of one that has been carried out") {
    s.order(msg::DrainEnd::KEEP);
    s.tell_report(101, true);
    CHECK(s.heard().back() == "77 drained 0 over");
    s.order(msg::DrainEnd::STOP, 10s, 4s, 79);
    s.tell_report(101, true);
    s.child_ends(0);
    CHECK(s.heard().back() == "79 stopped 0 over");
    s.undrain();
    CHECK(s.heard() == lines{"78 restarting 0"});
  }
}

TEST_CASE("an engine that was idle before it heard of the order may have a job by now") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  SECTION("of the first order") { s.order(msg::DrainEnd::RESTART); }
  SECTION("of one that follows on another, taken back") {
    s.order(msg::DrainEnd::KEEP);
    s.hear();
    s.undrain();
    s.order(msg::DrainEnd::RESTART);
  }
  s.scene::tell_report(101, true, 0, s.held);  // on its way when the order came
  CHECK(s.signals.empty());
  CHECK(s.heard().back() == "77 draining 0");
  s.tell_report(101, false, 1);
  CHECK(s.signals.empty());
  s.tell_report(101, true);
  CHECK(s.signals == std::vector<int>{SIGTERM});
}

TEST_CASE("an engine that is cut off while its node stops is unknown as soon as any, and killed") {
  drain_scene s;
  s.tell_status(state::READY, 101);
  caf::anon_send(s.launcher, stop_engine{60s, 2s, s.asker});
  s.run();
  link::link_down down;
  down.peer.engine = "decode/p/h0.0";
  down.peer.generation = 101;
  SECTION("with streams") {
    caf::anon_send(s.launcher, down);
    s.run();
    CHECK(s.take<health::engine_out_of_reach>(s.watchdog).size() == 1);
    s.advance(link_loss_grace);
    CHECK(s.last_announced().state == state::UNKNOWN);
    s.advance(6s);
    CHECK(s.signals == std::vector<int>{SIGKILL});
    s.child_ends(SIGKILL, true);
    CHECK(s.launcher_ended());
  }
  SECTION("but not one that takes its leave") {
    s.tell_report(101, true);
    CHECK(s.signals == std::vector<int>{SIGTERM});
    (void)s.announced();
    caf::anon_send(s.launcher, down);
    s.run();
    s.advance(link_loss_grace);
    CHECK(s.announced().empty());
  }
}
