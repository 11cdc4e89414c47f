#include "actors/health/watchdog_actor.hpp"
#include "actors/launcher/launcher_actor.hpp"
#include "messages/base/exit_codes.hpp"
#include "tests/actor/launcher/scene.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace troupe;
using namespace troupe::launcher;
using namespace troupe::launcher::testing;

TEST_CASE("an engine is started with what it needs to join its node") {
  scene s;
  REQUIRE(s.starts.size() == 1);
  const auto& x = s.starts[0];
  CHECK(x.program == "/bin/troupe");
  CHECK(x.arguments == std::vector<std::string>{"engine", "--config", "/c.toml", "--name",
                                                "decode/p/h0.0", "--generation", "101",
                                                "--node-port", "7", "--secret-fd", "{secret-fd}",
                                                "--board-fd", "42"});
  CHECK(x.inherited == 42);
  CHECK(x.secret == std::vector<std::uint8_t>{1, 2, 3});
  auto e = s.last_announced();
  CHECK(e.state == state::STARTING);
  CHECK(e.generation == 101);
  CHECK(e.role == msg::Role::DECODE);
  CHECK(e.model == "m");
}

TEST_CASE("the other engines of the host are told when a process that had KV to exchange is gone") {
  scene s;
  s.child_ends(1);  // before it was ready: nobody can have met it
  CHECK(s.take_envelopes<msg::EngineCommand>(s.neighbour).empty());
  s.advance(1s);
  s.take_envelopes<msg::EngineCommand>(s.neighbour);
  s.tell_status(state::READY, 102);
  s.child_ends(9, true);
  const auto told = s.take_envelopes<msg::EngineCommand>(s.neighbour);
  REQUIRE(told.size() == 1);
  msg::view<msg::EngineCommand> in{told[0].second};
  REQUIRE(in->isPeerEnded());
  const auto peer = in->getPeerEnded();
  CHECK(std::string(peer.getEngine().cStr()) == "decode/p/h0.0");
  CHECK(peer.getGeneration() == 102);
  CHECK(peer.getTransferAddress() == "where"_kj.asBytes());
  // Once more when the next one starts, for whoever had no link just then.
  s.advance(1s);
  const auto again = s.take_envelopes<msg::EngineCommand>(s.neighbour);
  REQUIRE(again.size() == 1);
  msg::view<msg::EngineCommand> later{again[0].second};
  CHECK(later->getPeerEnded().getGeneration() == 102);
  s.advance(10s);
  CHECK(s.take_envelopes<msg::EngineCommand>(s.neighbour).empty());
}

TEST_CASE("an engine whose link is back hears which incarnations of its neighbours are dead") {
  scene s;
  s.tell_status(state::READY, 101);
  auto all = std::make_shared<directory::snapshot>(*s.view->get());
  auto& e = (*all)["prefill/p/h0.0"];
  e.name = "prefill/p/h0.0";
  e.generation = 33;
  s.view->set(all);
  s.take_envelopes<msg::EngineCommand>(s.worker);
  link::link_up up;
  up.peer.engine = "decode/p/h0.0";
  SECTION("its own link") {
    up.peer.generation = 101;
    caf::anon_send(s.launcher, up);
    s.run();
    const auto told = s.take_envelopes<msg::EngineCommand>(s.worker);
    REQUIRE(told.size() == 1);
    msg::view<msg::EngineCommand> in{told[0].second};
    REQUIRE(in->isPeerEnded());
    CHECK(std::string(in->getPeerEnded().getEngine().cStr()) == "prefill/p/h0.0");
    CHECK(in->getPeerEnded().getGeneration() == 32);
    CHECK(in->getPeerEnded().getTransferAddress().size() == 0);
  }
  SECTION("that of an older incarnation") {
    up.peer.generation = 100;
    caf::anon_send(s.launcher, up);
    s.run();
    CHECK(s.take_envelopes<msg::EngineCommand>(s.worker).empty());
  }
}

TEST_CASE("an engine that ends with its launcher is told of, too") {
  scene s;
  s.tell_status(state::READY, 101);
  s.announced();
  caf::anon_send_exit(s.launcher, caf::exit_reason::kill);
  s.run();
  CHECK_FALSE(s.alive);
  const auto left = s.last_announced();  // who was there goes elsewhere
  CHECK(left.state == state::UNKNOWN);
  CHECK(left.generation == 101);
  const auto told = s.take_envelopes<msg::EngineCommand>(s.neighbour);
  REQUIRE(told.size() == 1);
  msg::view<msg::EngineCommand> in{told[0].second};
  REQUIRE(in->isPeerEnded());
  CHECK(in->getPeerEnded().getGeneration() == 101);
}

TEST_CASE("an engine's reports go to the watchdog, and a hung one is killed and restarted") {
  scene s;
  s.tell_status(state::READY, 101);
  msg::draft<msg::WorkerReport> d;
  d->setGeneration(101);
  d->setSteps(7);
  d->setTicks(70);
  d->setPrefilledTokens(500);
  d->setSampledTokens(20);
  d->setBusyUs(9'000);
  d->setStepping(true);
  d->setAtHand(12);
  d->setStalls(2);
  d->setPreparing(1);
  d->setUnprepared(4);
  d->setPreparingSign(33);
  d->setPreparingComputedMs(250);
  d->setPreparingBytes(8'000);
  d->setTransferRounds(9);
  d->setTicksInside(true);
  d->setTransferDeviceChanged(3);
  s.office->send({launcher_name({"decode/p/h0.0", "p", "h0", 0}), 0}, {"decode/p/h0.0", 101},
                 std::move(d).freeze().value());
  s.run();
  const auto told = s.take<health::engine_progress>(s.watchdog);
  REQUIRE(told.size() == 1);
  CHECK(told[0].engine == "decode/p/h0.0");
  CHECK(told[0].generation == 101);
  CHECK(told[0].account.steps == 7);
  CHECK(told[0].account.ticks == 70);
  CHECK(told[0].account.ticks_inside);
  CHECK(told[0].account.tokens == 520);
  CHECK(told[0].account.busy == 9ms);
  CHECK(told[0].account.stepping);
  CHECK(told[0].account.at_hand == 12);
  CHECK(told[0].account.stalls == 2);
  CHECK(told[0].account.preparing.in_hand == 1);
  CHECK(told[0].account.preparing.waiting == 4);
  CHECK(told[0].account.preparing.sign == 33);
  CHECK(told[0].account.preparing.computed == 250ms);
  CHECK(told[0].account.preparing.bytes == 8'000);
  CHECK(told[0].account.transport.rounds == 9);
  CHECK(told[0].account.transport.device_changed == 3);
  auto judge = [&](std::uint64_t generation, health::verdict what) {
    caf::anon_send(s.launcher, health::engine_judged{
                                   "decode/p/h0.0",
                                   generation,
                                   {what, what == health::verdict::healthy ? "" : "for 6000 ms"}});
    s.run();
  };
  judge(100, health::verdict::hung);  // of an earlier life
  s.announced();
  judge(101, health::verdict::slow);
  auto e = s.last_announced();
  CHECK(e.state == state::READY);
  CHECK(e.slow == "for 6000 ms");
  s.tell_status(state::READY, 101);  // its own word changes nothing of that
  CHECK(s.last_announced().slow == "for 6000 ms");
  judge(101, health::verdict::healthy);
  CHECK(s.last_announced().slow.empty());
  judge(101, health::verdict::slow);
  CHECK(s.signals.empty());
  s.announced();
  judge(101, health::verdict::hung);
  CHECK(s.signals == std::vector{SIGKILL});
  CHECK(s.last_announced().state == state::UNKNOWN);  // requests go elsewhere at once
  s.child_ends(9, true);
  CHECK_THAT(s.last_announced().detail, Catch::Contains("hung for 6000 ms"));
  s.advance(1s);
  CHECK(s.starts.size() == 2);
  CHECK(s.last_announced().slow.empty());  // a new life
}

TEST_CASE("an engine that is broken life after life is not started again") {
  scene s{supervision::restart_limits{100, 60s, 100ms, 100ms}};
  auto lives = [&](int count, health::verdict what) {
    for (int i = 0; i < count; ++i) {
      s.tell_status(state::READY, s.generation);
      caf::anon_send(s.launcher,
                     health::engine_judged{"decode/p/h0.0", s.generation, {what, "no numbers"}});
      s.run();
      CHECK(s.signals == std::vector{SIGKILL});
      s.signals.clear();
      s.child_ends(SIGKILL, true);
      s.advance(200ms);
    }
  };
  lives(broken_lives_max - 1, health::verdict::broken);
  CHECK(s.alive);
  SECTION("its last life, too") {
    lives(1, health::verdict::broken);
    CHECK_FALSE(s.alive);
    const auto e = s.last_announced();
    CHECK(e.state == state::FAILED);
    CHECK(e.detail == "it is broken: no numbers");
  }
  SECTION("but not its last one") {
    lives(1, health::verdict::hung);
    lives(broken_lives_max - 1, health::verdict::broken);
    CHECK(s.alive);
  }
}

TEST_CASE("the watchdog hears when nothing can come from an engine") {
  scene s;
  s.tell_status(state::READY, 101);
  CHECK(s.take<health::engine_out_of_reach>(s.watchdog).empty());
  SECTION("its link is lost") {
    link::link_down down;
    down.peer.engine = "decode/p/h0.0";
    down.peer.generation = 101;
    caf::anon_send(s.launcher, down);
    s.run();
  }
  SECTION("its process has ended") { s.child_ends(SIGSEGV, true); }
  SECTION("its launcher is killed, and it with that") {
    caf::anon_send_exit(s.launcher, caf::exit_reason::kill);
    s.run();
  }
  const auto told = s.take<health::engine_out_of_reach>(s.watchdog);
  REQUIRE(told.size() == 1);
  CHECK(told[0].engine == "decode/p/h0.0");
  CHECK(told[0].generation == 101);
}

TEST_CASE("the watchdog hears that an engine can be heard, also one that has just begun") {
  scene s;
  const auto told = [&] { return s.take<health::engine_in_reach>(s.watchdog).size(); };
  s.advance(5s);
  CHECK(told() == 0);  // it loads
  s.tell_status(state::READY, 101);
  CHECK(told() == 1);
  s.watchdog = s.capture();
  s.advance(in_reach_interval);
  CHECK(told() == 1);
  link::link_down down;
  down.peer.engine = "decode/p/h0.0";
  down.peer.generation = 101;
  caf::anon_send(s.launcher, down);
  s.advance(3s);
  CHECK(told() == 0);
  link::link_up up;  // and its worker says nothing
  up.peer = down.peer;
  caf::anon_send(s.launcher, up);
  s.run();
  CHECK(told() == 1);
  s.child_ends(SIGSEGV, true);
  s.advance(3s);
  CHECK(told() == 0);
}

TEST_CASE("a process that does not heed SIGKILL is failed for as long as it stays") {
  scene s;
  s.tell_status(state::READY, 101);
  caf::anon_send(s.launcher,
                 health::engine_judged{"decode/p/h0.0", 101, {health::verdict::hung, "long"}});
  s.run();
  CHECK(s.signals == std::vector{SIGKILL});
  s.advance(kill_heeded_max - 1s);
  CHECK(s.last_announced().state == state::UNKNOWN);
  SECTION("it ends late") {
    s.child_ends(SIGKILL, true);
    s.advance(2s);
    CHECK(s.starts.size() == 2);
    s.advance(5s);  // of the dead one
    CHECK(s.last_announced().state == state::STARTING);
  }
  SECTION("it stays") {
    s.advance(1s);
    const auto e = s.last_announced();
    CHECK(e.state == state::FAILED);
    CHECK_THAT(e.detail, Catch::Contains("4711 cannot be killed"));
    CHECK(s.starts.size() == 1);
    s.child_ends(SIGKILL, true);
    s.advance(200ms);
    CHECK(s.starts.size() == 2);
    CHECK(s.last_announced().state == state::STARTING);
  }
}

TEST_CASE("the engine's own word becomes its entry") {
  scene s;
  s.tell_status(state::READY, 101);
  auto e = s.last_announced();
  CHECK(e.state == state::READY);
  CHECK(e.slots == 8);
  CHECK(e.name == "decode/p/h0.0");
  CHECK(e.generation == 101);
}

TEST_CASE("what cannot be read is dropped, and launcher and engine go on") {
  scene s;
  const msg::address to{launcher_name({"decode/p/h0.0", "p", "h0", 0}), 0};
  s.office->send(to, {"decode/p/h0.0", 101}, test::unreadable<msg::EngineStatus>());
  s.office->send(to, {"decode/p/h0.0", 101}, test::unreadable<msg::WorkerReport>());
  s.run();
  CHECK(s.alive);
  s.tell_status(state::READY, 101);
  CHECK(s.last_announced().state == state::READY);
  CHECK_FALSE(s.launcher_ended());
}

TEST_CASE("a word of loading that comes after the ready worker's is not heard") {
  scene s;
  s.tell_status(state::LOADING, s.generation, {}, 0.5F);
  s.tell_status(state::READY, s.generation);
  CHECK(s.last_announced().state == state::READY);
  s.tell_status(state::LOADING, s.generation, {}, 0.9F);
  CHECK(s.announced().empty());
  // The next incarnation loads, too.
  s.child_ends(11, true);
  s.advance(200ms);
  s.tell_status(state::LOADING, s.generation);
  CHECK(s.last_announced().state == state::LOADING);
}

TEST_CASE("the word of an older incarnation is not heard") {
  scene s;
  (void)s.announced();
  s.tell_status(state::READY, 100);
  CHECK(s.announced().empty());
}

TEST_CASE("a crash is announced at once and followed by a restart as a newer generation") {
  scene s;
  s.tell_status(state::READY, 101);
  (void)s.announced();
  s.child_ends(SIGSEGV, true);
  auto e = s.last_announced();
  CHECK(e.state == state::STARTING);
  CHECK(e.detail.find("signal 11") != std::string::npos);
  CHECK_FALSE(s.alive);
  CHECK(s.starts.size() == 1);
  s.advance(150ms);
  REQUIRE(s.starts.size() == 2);
  CHECK(s.last_announced().generation == 102);
  s.starts[0].on_exit({true, SIGKILL});  // late news of the first
  s.advance(1s);
  CHECK(s.starts.size() == 2);
  CHECK(s.alive);
}

TEST_CASE("when an engine crashes the request hubs are told who was at hand, before anybody hears "
          "that it is gone") {
  scene s;
  s.tell_status(state::READY, 101);
  link::link_down down;
  down.peer.engine = "decode/p/h0.0";
  down.peer.generation = 101;
  caf::anon_send(s.launcher, down);  // the sockets of a process close before it has ended
  s.run();
  (void)s.announced();
  const msg::job_key key{{1, 2}, 3, 4};
  s.last_words = crash::board_reading{{key}, 9};
  s.child_ends(SIGSEGV, true);
  for (const auto& hub : {s.hub, s.other_hub}) {
    const auto told = s.take_envelopes<msg::CrashSuspects>(hub);
    REQUIRE(told.size() == 1);
    msg::view<msg::CrashSuspects> in{told[0].second};
    CHECK(std::string(in->getEngine().cStr()) == "decode/p/h0.0");
    CHECK(in->getGeneration() == 101);
    CHECK(in->getSuspects() == 9);
    REQUIRE(in->getKeys().size() == 1);
    CHECK(msg::read(in->getKeys()[0]) == key);
    CHECK_THAT(in->getReason().cStr(), Catch::Contains("signal 11"));
  }
  const auto all = s.announced();
  REQUIRE(all.size() == 1);
  CHECK(all[0].state == state::STARTING);
}

TEST_CASE("an end that is nobody's fault names no suspects") {
  scene s;
  s.tell_status(state::READY, 101);
  s.last_words = crash::board_reading{{{{1, 2}, 3, 4}}, 1};
  bool crashed = false;
  SECTION("nothing was at hand") {
    s.last_words.reset();
    s.child_ends(SIGSEGV, true);
  }
  SECTION("killed by an operator, or for its memory") { s.child_ends(SIGKILL, true); }
  SECTION("its node was unreachable") { s.child_ends(exit_refused); }
  SECTION("an actor of it ended, over nobody's prompt") {
    s.last_words.reset();
    s.child_ends(exit_internal);
  }
  SECTION("it was told to stop") {
    caf::anon_send(s.launcher, stop_engine{0ms, 2s, s.asker});
    s.run();
    s.child_ends(SIGABRT, true);
  }
  SECTION("it hung, and crashed on being killed") {
    caf::anon_send(s.launcher,
                   health::engine_judged{"decode/p/h0.0", 101, {health::verdict::hung, "long"}});
    s.run();
    s.child_ends(SIGSEGV, true);
  }
  SECTION("but the same end without any of that does") {
    s.child_ends(SIGABRT, true);
    crashed = true;
  }
  SECTION("and the loss of an actor over somebody's prompt") {
    s.child_ends(exit_internal);
    crashed = true;
  }
  CHECK(s.take_envelopes<msg::CrashSuspects>(s.hub).size() == (crashed ? 1 : 0));
}

TEST_CASE("which ends are crashes") {
  for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
    CHECK(is_crash({true, signal}, false));
  for (int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP})
    CHECK_FALSE(is_crash({true, signal}, false));
  CHECK(is_crash({false, exit_failure}, false));
  CHECK(is_crash({false, exit_internal}, false));
  CHECK(is_crash({false, 139}, false));
  for (int code = exit_ok; code <= exit_internal; ++code)
    if (code != exit_failure && code != exit_internal) CHECK_FALSE(is_crash({false, code}, false));
  CHECK_FALSE(is_crash({true, SIGSEGV}, true));
}

TEST_CASE("an engine that cannot work is not started again") {
  scene s;
  s.tell_status(state::FAILED, 101, "/m.gguf: not a GGUF file");
  s.child_ends(exit_model);
  auto e = s.last_announced();
  CHECK(e.state == state::FAILED);
  CHECK(e.detail == "/m.gguf: not a GGUF file");
  s.advance(60s);
  CHECK(s.starts.size() == 1);
}

TEST_CASE("no crash loop without a limit") {
  scene s;
  for (int i = 0; i < 10; ++i) {
    if (s.alive) s.child_ends(1);
    s.advance(1s);
  }
  CHECK(s.starts.size() == 4);
  CHECK(s.last_announced().state == state::FAILED);
}

TEST_CASE("requests that crash an engine do not take it out of service for good") {
  scene s;  // three restarts
  bool ready = true, given_up = true;
  std::vector<std::uint64_t> computed{500};  // in a life, by turns
  s.last_words = crash::board_reading{{{{1, 2}, 3, 4}}, 1};
  SECTION("each life was of use to somebody") { given_up = false; }
  SECTION("some were") {
    computed = {0, 0, 0, 500};
    given_up = false;
  }
  SECTION("nothing was at hand: its own fault") { s.last_words.reset(); }
  SECTION("it computes nothing before it crashes: its device's fault, maybe") { computed = {0}; }
  SECTION("it never loads") { ready = false; }
  for (std::size_t i = 0; i < 10 && s.alive; ++i) {
    if (ready) {
      s.tell_status(state::READY, s.generation);
      s.tell_report(s.generation, false, 1, 0, computed[i % computed.size()]);
    }
    s.child_ends(SIGSEGV, true);
    s.advance(1s);
  }
  CHECK(s.starts.size() == (given_up ? 4 : 11));
  CHECK((s.last_announced().state == state::FAILED) == given_up);
}

TEST_CASE("a process that cannot be started is tried again within the same limit") {
  scene s;
  s.cannot_start = true;
  s.child_ends(1);
  s.advance(60s);
  CHECK(s.starts.size() == 1);
  auto e = s.last_announced();
  CHECK(e.state == state::FAILED);
  CHECK(e.detail == "no memory");
}

TEST_CASE("loading may take long, but not without progress") {
  scene s;
  SECTION("no sign of life") {
    s.advance(9s);
    CHECK(s.signals.empty());
    s.advance(2s);
    CHECK(s.signals == std::vector<int>{SIGKILL});
  }
  SECTION("it says that it is loading, and does not get on") {
    for (int i = 0; i < 10 && s.signals.empty(); ++i) {
      s.tell_status(state::LOADING, 101, {}, 0.5F);
      s.advance(3s);
    }
    CHECK(s.signals == std::vector<int>{SIGKILL});
    s.child_ends(SIGKILL, true);
    CHECK_THAT(s.last_announced().detail, Catch::Contains("no progress"));
  }
  SECTION("with progress") {
    for (int i = 0; i < 10; ++i) {
      s.tell_status(state::LOADING, 101, {}, 0.01F * static_cast<float>(i));
      s.advance(5s);
    }
    CHECK(s.signals.empty());
    s.tell_status(state::READY, 101);
    s.advance(60s);
    CHECK(s.signals.empty());
  }
}

TEST_CASE("an engine without a link is soon unknown, and killed if it doesn't come back") {
  scene s;
  s.tell_status(state::READY, 101);
  (void)s.announced();
  link::link_down down;
  down.peer.engine = "decode/p/h0.0";
  down.peer.generation = 101;
  caf::anon_send(s.launcher, down);
  s.run();
  // Should its process have ended, that is known in a moment.
  CHECK(s.announced().empty());
  s.advance(link_loss_grace);
  auto e = s.last_announced();
  CHECK(e.state == state::UNKNOWN);
  CHECK(e.slots == 8);
  SECTION("gone") {
    s.advance(6s);
    CHECK(s.signals == std::vector<int>{SIGKILL});
  }
  SECTION("back") {
    s.advance(3s);
    s.tell_status(state::READY, 101);
    s.advance(10s);
    CHECK(s.signals.empty());
  }
  SECTION("back, and lost again: the patience begins anew") {
    s.advance(1s);
    s.tell_status(state::READY, 101);
    s.advance(3s);
    caf::anon_send(s.launcher, down);
    s.advance(4s);
    CHECK(s.signals.empty());
    s.advance(2s);
    CHECK(s.signals == std::vector<int>{SIGKILL});
  }
  SECTION("of an older incarnation") {
    s.child_ends(1);
    s.advance(200ms);
    s.signals.clear();
    s.advance(6s);
    CHECK(s.signals.empty());
  }
}

TEST_CASE("stopping: SIGTERM, then SIGKILL at the deadline") {
  scene s;
  s.tell_status(state::READY, 101);
  caf::anon_send(s.launcher, stop_engine{0ms, 2s, s.asker});
  s.run();
  CHECK(s.signals == std::vector<int>{SIGTERM});
  SECTION("it obeys") {
    s.child_ends(0);
    CHECK(s.take<engine_stopped>(s.asker).size() == 1);
    CHECK(s.last_announced().state == state::STOPPED);
    CHECK(s.launcher_ended());
  }
  SECTION("it doesn't") {
    s.advance(2100ms);
    CHECK(s.signals == std::vector<int>{SIGTERM, SIGKILL});
    CHECK(s.take<engine_stopped>(s.asker).empty());
    s.child_ends(SIGKILL, true);
    CHECK(s.take<engine_stopped>(s.asker).size() == 1);
  }
  CHECK(s.starts.size() == 1);
}

TEST_CASE("an EXIT stops the engine in order, a kill at once") {
  scene s;
  SECTION("EXIT") {
    caf::anon_send_exit(s.launcher, caf::exit_reason::user_shutdown);
    s.run();
    CHECK(s.signals == std::vector<int>{SIGTERM});
    CHECK(s.alive);
    s.child_ends(0);
    CHECK(s.launcher_ended());
  }
  SECTION("kill") {
    caf::anon_send_exit(s.launcher, caf::exit_reason::kill);
    s.run();
    CHECK(s.launcher_ended());
    CHECK_FALSE(s.alive);
    CHECK_FALSE(s.office->knows("launcher/p/h0.0"));
  }
}
