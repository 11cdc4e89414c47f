#include "actors/supervision/supervisor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>

using namespace troupe;
using namespace troupe::supervision;
using namespace std::chrono_literals;

namespace {

using fail_atom = caf::atom_constant<caf::atom("fail")>;
using throw_atom = caf::atom_constant<caf::atom("throw")>;
using end_atom = caf::atom_constant<caf::atom("end")>;

/// Records starts and ends of all children in order, and what each child's current handle is.
struct records {
  std::vector<std::string> log;
  std::map<std::string, caf::actor> handles;
  std::map<std::string, std::uint64_t> generations;
  std::set<std::string> refuse_to_end;
  std::map<std::string, int> failing_starts;
  caf::error supervisor_end;
  bool supervisor_ended = false;
};

/// The records come first, since actors still write to them while the system ends.
struct scene : records, test::deterministic_system {
  scene() { spdlog::set_level(spdlog::level::off); }

  child_spec spec(const std::string& id, restart_kind kind = restart_kind::permanent) {
    return {id,
            [this, id](std::uint64_t generation) -> expected<caf::actor> {
              if (failing_starts[id] > 0) {
                --failing_starts[id];
                log.push_back("!" + id);
                return error{"no", "not today"};
              }
              log.push_back("+" + id);
              generations[id] = generation;
              return handles[id] = spawn_child(id);
            },
            kind, 1000ms};
  }

  caf::actor spawn_child(const std::string& id) {
    return system.spawn(
        [this](caf::event_based_actor* self, const std::string& id) -> caf::behavior {
          self->attach_functor([this, id](const caf::error&) { log.push_back("-" + id); });
          self->set_exit_handler([this, id, self](caf::exit_msg& e) {
            if (!refuse_to_end.contains(id)) self->quit(e.reason);
          });
          return {
              [self](fail_atom) { self->quit(caf::make_error(caf::sec::runtime_error, "broken")); },
              [self](end_atom) { self->quit(); },
              [](throw_atom) { throw std::runtime_error("thrown"); },
          };
        },
        id);
  }

  caf::actor start(strategy how, std::vector<child_spec> children,
                   restart_limits limits = {5, 60s, 100ms, 100ms}) {
    supervisor_options o;
    o.name = "test";
    o.how = how;
    o.limits = limits;
    o.children = std::move(children);
    auto s = spawn_supervisor(system, std::move(o));
    s->attach_functor([this](const caf::error& reason) {
      supervisor_ended = true;
      supervisor_end = reason;
    });
    run();
    return own(s);
  }

  template <class Atom>
  void tell(const std::string& id, Atom what) {
    caf::anon_send(handles.at(id), what);
    run();
  }

  children_report report(const caf::actor& supervisor) {
    auto asker = capture();
    caf::send_as(asker, supervisor, describe_children{});
    run();
    return take<children_report>(asker).at(0);
  }

  std::vector<std::string> take_log() { return std::exchange(log, {}); }
};

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("children start in order and stop in reverse") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b"), s.spec("c")});
  CHECK(s.take_log() == names{"+a", "+b", "+c"});
  caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
  s.run();
  CHECK(s.take_log() == names{"-c", "-b", "-a"});
  CHECK(s.supervisor_ended);
}

TEST_CASE(
    "one_for_one restarts only the child that failed, after the back-off, as a newer generation") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b")});
  const auto before = s.generations["a"];
  (void)s.take_log();
  s.tell("a", fail_atom::value);
  CHECK(s.take_log() == names{"-a"});
  s.advance(49ms);  // the back-off lies in [50, 100] ms
  CHECK(s.take_log().empty());
  s.advance(60ms);
  CHECK(s.take_log() == names{"+a"});
  CHECK(s.generations["a"] > before);
  CHECK(s.generations["a"] > s.generations["b"]);
}

TEST_CASE("a thrown exception and a kill are failures, and neither takes the supervisor along") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a")});
  (void)s.take_log();
  SECTION("exception") { s.tell("a", throw_atom::value); }
  SECTION("kill") {
    caf::anon_send_exit(s.handles["a"], caf::exit_reason::kill);
    s.run();
  }
  s.advance(200ms);
  CHECK(s.take_log() == names{"-a", "+a"});
  CHECK_FALSE(s.supervisor_ended);
}

TEST_CASE("rest_for_one restarts the child and those after it, in order") {
  scene s;
  auto supervisor = s.start(strategy::rest_for_one,
                            {s.spec("a"), s.spec("b"), s.spec("c"), s.spec("d")});
  (void)s.take_log();
  s.tell("b", fail_atom::value);
  s.advance(200ms);
  CHECK(s.take_log() == names{"-b", "-d", "-c", "+b", "+c", "+d"});
}

TEST_CASE("one_for_all restarts all") {
  scene s;
  auto supervisor = s.start(strategy::one_for_all, {s.spec("a"), s.spec("b"), s.spec("c")});
  (void)s.take_log();
  s.tell("b", fail_atom::value);
  s.advance(200ms);
  CHECK(s.take_log() == names{"-b", "-c", "-a", "+a", "+b", "+c"});
}

TEST_CASE("a second failure while the first is being mended is mended, too") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b")});
  (void)s.take_log();
  s.tell("a", fail_atom::value);
  s.tell("b", fail_atom::value);
  s.advance(300ms);
  auto log = s.take_log();
  REQUIRE(log.size() == 4);
  std::sort(log.begin() + 2, log.end());  // each after its own back-off
  CHECK(log == names{"-a", "-b", "+a", "+b"});
}

TEST_CASE("one_for_one: nobody's restart is put off by another child's failure") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b")},
                            {50, 60s, 100ms, 10s});
  for (int i = 0; i < 4; ++i) {
    s.tell("b", fail_atom::value);
    s.advance(1s);
  }
  (void)s.take_log();
  s.tell("b", fail_atom::value);  // the fifth: back in 0.8 to 1.6 s
  s.advance(700ms);
  s.tell("a", fail_atom::value);  // the sixth: in 1.6 to 3.2 s
  CHECK(s.take_log() == names{"-b", "-a"});
  s.advance(950ms);
  CHECK(s.take_log() == names{"+b"});
  s.advance(2300ms);
  CHECK(s.take_log() == names{"+a"});
}

TEST_CASE("kinds: transient ends well for good, temporary always") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("t", restart_kind::transient),
                                                    s.spec("x", restart_kind::temporary)});
  (void)s.take_log();
  s.tell("t", end_atom::value);
  s.tell("x", fail_atom::value);
  s.advance(500ms);
  CHECK(s.take_log() == names{"-t", "-x"});
  auto r = s.report(supervisor);
  CHECK(r.children[0].now == child_report::condition::ended);
  CHECK(r.children[1].now == child_report::condition::ended);
}

TEST_CASE("more restarts than allowed: all are stopped and the supervisor ends with an error") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b")},
                            {2, 60s, 10ms, 10ms});
  for (int i = 0; i < 2; ++i) {
    s.tell("a", fail_atom::value);
    s.advance(100ms);
  }
  (void)s.take_log();
  s.tell("a", fail_atom::value);
  CHECK(s.take_log() == names{"-a", "-b"});
  CHECK(s.supervisor_ended);
  CHECK(s.supervisor_end == caf::sec::runtime_error);
}

TEST_CASE("spread over time, the same number of failures is mended") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a")}, {2, 10s, 10ms, 10ms});
  for (int i = 0; i < 10; ++i) {
    s.tell("a", fail_atom::value);
    s.advance(6s);
  }
  CHECK_FALSE(s.supervisor_ended);
  CHECK(s.report(supervisor).children[0].restarts == 10);
}

TEST_CASE("a child that doesn't end in time is killed") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("stuck")});
  s.refuse_to_end.insert("stuck");
  (void)s.take_log();
  caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
  s.advance(950ms);
  CHECK(s.take_log().empty());
  s.advance(100ms);
  CHECK(s.take_log() == names{"-stuck", "-a"});
  CHECK(s.supervisor_ended);
}

TEST_CASE("a start that fails counts as a failure and is tried again") {
  scene s;
  s.failing_starts["b"] = 2;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b"), s.spec("c")});
  s.advance(1s);
  auto log = s.take_log();
  CHECK(std::count(log.begin(), log.end(), "!b") == 2);
  CHECK(std::count(log.begin(), log.end(), "+b") == 1);
  CHECK(std::count(log.begin(), log.end(), "+c") == 1);
  CHECK_FALSE(s.supervisor_ended);
}

TEST_CASE("a temporary child that fails to start does not hold up the next") {
  scene s;
  s.failing_starts["t"] = 1;
  auto supervisor = s.start(strategy::one_for_one,
                            {s.spec("a"), s.spec("t", restart_kind::temporary), s.spec("b")});
  s.advance(1s);
  CHECK(s.take_log() == names{"+a", "!t", "+b"});
  auto r = s.report(supervisor);
  CHECK(r.children[1].now == child_report::condition::ended);
  CHECK(r.children[1].last_end == "not today");
  CHECK(r.children[2].now == child_report::condition::running);
}

TEST_CASE("starts that always fail don't loop for ever") {
  scene s;
  s.failing_starts["a"] = 1000;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a")}, {3, 60s, 10ms, 10ms});
  s.advance(10s);
  CHECK(s.supervisor_ended);
  CHECK(s.take_log().size() == 4);
}

TEST_CASE("no orphans: a killed supervisor's children end") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b")});
  (void)s.take_log();
  caf::anon_send_exit(supervisor, caf::exit_reason::kill);
  supervisor = nullptr;
  s.run();
  auto log = s.take_log();
  std::sort(log.begin(), log.end());
  CHECK(log == names{"-a", "-b"});
}

TEST_CASE("a supervisor says what it holds") {
  scene s;
  auto supervisor = s.start(strategy::one_for_one, {s.spec("a"), s.spec("b")});
  s.tell("a", fail_atom::value);
  auto r = s.report(supervisor);
  CHECK(r.supervisor == "test");
  REQUIRE(r.children.size() == 2);
  CHECK(r.children[0].now == child_report::condition::waiting);
  CHECK(r.children[0].last_end.find("broken") != std::string::npos);
  CHECK(r.children[1].now == child_report::condition::running);
  CHECK(r.children[1].restarts == 0);
  s.advance(200ms);
  CHECK(s.report(supervisor).children[0].restarts == 1);
}
