#include "actors/control/control_actor.hpp"
#include "actors/control/memory_store.hpp"
#include "actors/control/shard_map.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/supervision/introspection.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>
#include <prometheus/text_serializer.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::control;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

// How it can fail: somebody hears of an assignment before the disk has it, or of one that it never
// got; a newcomer hears nothing; a second control actor, or the one before, has an effect; a shard
// that missed one goes on with an old one for ever.

const std::vector<std::string> three{"router/0", "router/1", "router/2"};

/// Answers when the test says so.
struct slow_store final : store {
  memory_store disk;
  bool waits = false;
  std::deque<std::pair<record, std::function<void(expected<void>)>>> open;

  record last() const override { return disk.last(); }
  void write(record next, std::function<void(expected<void>)> done) override {
    open.emplace_back(std::move(next), std::move(done));
    if (!waits) flush();
  }
  void flush() {
    for (auto& [next, done] : std::exchange(open, {})) disk.write(std::move(next), std::move(done));
  }
};

struct world : deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<slow_store> state = std::make_shared<slow_store>();
  caf::actor directory = capture();
  std::map<std::string, caf::actor> followers;
  directory::snapshot all;
  caf::actor control;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::uint64_t generation = 0;
  /// What a node that hears all of it goes by.
  shard_map node{three};

  world() { spdlog::set_level(spdlog::level::off); }

  static directory::entry entry_of(const std::string& name, std::uint64_t gen,
                                   msg::EntryState is = msg::EntryState::READY) {
    directory::entry e;
    e.name = name;
    e.generation = gen;
    e.role = name.rfind("router/", 0) == 0 ? msg::Role::ROUTER : msg::Role::REQUESTS;
    e.state = is;
    return e;
  }

  caf::actor start() {
    control_options o;
    o.generation = ++generation;
    o.shards = three;
    o.state = state;
    o.office = office;
    o.directory = directory;
    o.metrics = registry;
    auto a = own(spawn_control(system, std::move(o)));
    run();
    REQUIRE(take<directory::subscribe>(directory).size() == 1);
    directory::change c;
    for (const auto& [name, e] : all) c.added_or_changed.push_back(e);
    caf::anon_send(a, directory::directory_changed{c, nullptr, {}});
    run();
    return control = a;
  }
  std::string metrics() const {
    return prometheus::TextSerializer{}.Serialize(registry->Collect());
  }
  void kill(const caf::actor& a) {
    caf::anon_send_exit(a, caf::exit_reason::kill);
    run();
  }

  void come(const directory::entry& e) {
    if (!followers.contains(e.name)) {
      followers[e.name] = capture();
      office->bind(e.name, 0, followers[e.name]);
    }
    all[e.name] = e;
    caf::anon_send(control, directory::directory_changed{{{e}, {}}, nullptr, {}});
    run();
    if (e.role != msg::Role::ROUTER) return;
    shard_load l;  // it has served nobody yet
    l.shard = e.name;
    l.generation = e.generation;
    if (const auto known = state->last().last) l.goes_by = known->number();
    tell(l);
  }
  void come(const std::string& name, std::uint64_t gen = 1) { come(entry_of(name, gen)); }
  void go_away(const std::string& name, const std::string& host) {
    caf::anon_send(control, directory::directory_changed{{{}, {all.at(name)}}, nullptr, host});
    all.erase(name);
    run();
  }

  /// The assignments that somebody was sent since the last look.
  std::vector<assignment> sent(const std::string& who) {
    std::vector<assignment> out;
    for (auto& [from, e] : take_envelopes<msg::Assignment>(followers.at(who))) {
      CHECK(from.from.name == control_name);
      out.push_back(read(*msg::view<msg::Assignment>{e}).value());
    }
    return out;
  }
  std::vector<assignment_number> numbers(const std::string& who) {
    std::vector<assignment_number> out;
    for (const auto& a : sent(who)) out.push_back(a.number());
    return out;
  }
  void tell(const shard_load& said) {
    msg::draft<msg::ShardLoad> d;
    write(*d, said);
    office->send({control_name, 0}, {said.shard, said.generation}, std::move(d).freeze().value());
    run();
  }
  template <class Answer, class Question>
  Answer ask(Question q) {
    caf::scoped_actor me{system};
    auto asked = me->request(control, caf::infinite, q);
    run();
    Answer out;
    asked.receive([&](const Answer& a) { out = a; }, [](const caf::error&) { FAIL("no answer"); });
    return out;
  }
};

using numbers = std::vector<assignment_number>;

bool gives_nothing_to(const assignment& a, const std::string& shard) {
  for (const auto& s : a.slices())
    if (a.has(shard, s.first)) return false;
  return true;
}

}  // namespace

TEST_CASE("a start has a higher term on the disk before anybody hears of it") {
  world w;
  w.state->waits = true;
  w.start();
  for (const auto& s : three) w.come(s);
  w.come("requests/h0");
  w.advance(5min);
  for (const auto& [name, who] : w.followers) CHECK(w.sent(name).empty());
  w.state->flush();
  w.run();
  for (const auto& [name, who] : w.followers) CHECK(w.numbers(name) == numbers{{1, 1}});

  // The next incarnation, too.
  w.kill(w.control);
  w.start();
  for (const auto& [name, who] : w.followers) CHECK(w.sent(name).empty());
  w.state->flush();
  w.run();
  for (const auto& [name, who] : w.followers) CHECK(w.numbers(name) == numbers{{2, 1}});
  CHECK(w.state->last().term == 2);
}

TEST_CASE("a lost shard's keys are with others soon, on the disk before anybody hears of it") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  w.come("requests/h0");
  w.advance(2s);
  CHECK(w.numbers("requests/h0") == numbers{{1, 1}});
  w.state->waits = true;
  w.go_away("router/2", "h2");
  w.advance(1s);
  CHECK(w.state->open.size() == 1);
  CHECK(w.sent("requests/h0").empty());
  CHECK(w.sent("router/0").size() == 1);  // its first
  w.state->waits = false;
  w.state->flush();
  w.run();
  const auto next = w.sent("requests/h0");
  REQUIRE(next.size() == 1);
  CHECK(next[0].number() == assignment_number{1, 2});
  CHECK(gives_nothing_to(next[0], "router/2"));
  CHECK(w.sent("router/0").size() == 1);
  CHECK(w.state->last().last->number() == assignment_number{1, 2});
  const auto r = w.ask<control_report>(describe_control{});
  CHECK(r.lost == std::vector<std::string>{"router/2"});
  CHECK(r.number == assignment_number{1, 2});
  for (const auto* line :
       {"troupe_control_term 1", "troupe_control_generation 2", "troupe_control_shards_lost 1",
        "troupe_control_stuck 0", "troupe_control_assignments_total 2"})
    CHECK_THAT(w.metrics(), Catch::Contains(line));
  // Another incarnation goes on with the counts.
  w.kill(w.control);
  w.start();
  w.advance(1min);
  CHECK_THAT(w.metrics(), Catch::Contains("troupe_control_term 2") &&
                              Catch::Contains("troupe_control_assignments_total 3"));
}

TEST_CASE("who comes later hears of it, and who missed it, again") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  w.come("requests/h9");
  CHECK(w.numbers("requests/h9") == numbers{{1, 1}});
  w.come("requests/h9", 2);
  CHECK(w.numbers("requests/h9") == numbers{{1, 1}});
  // A shard that tells of an older one.
  w.sent("router/1");
  shard_load l;
  l.shard = "router/1";
  l.generation = 1;
  l.goes_by = {0, 0};
  w.tell(l);
  CHECK(w.numbers("router/1") == numbers{{1, 1}});
  l.goes_by = {1, 1};
  w.tell(l);
  CHECK(w.sent("router/1").empty());
  // And all of them now and then: a hub says nothing.
  w.advance(30s);
  CHECK(w.numbers("requests/h9") == numbers{{1, 1}});
}

TEST_CASE("nothing is needed of a dead control actor: all keep what they have") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  w.advance(2s);
  for (const auto& a : w.sent("router/0")) w.node.offer(a);
  w.kill(w.control);
  CHECK_FALSE(w.office->knows(control_name));
  w.go_away("router/2", "h2");
  w.advance(1h);
  CHECK(w.sent("router/0").empty());
  CHECK(w.node.get()->number() == assignment_number{1, 1});
}

TEST_CASE("of two control actors nodes refuse the one with the lower term") {
  world w;
  const auto old = w.start();
  for (const auto& s : three) w.come(s);
  w.advance(2s);
  // It is taken for lost, and another one begins with its record.
  const auto next = w.start();
  for (const auto& a : w.sent("router/0")) w.node.offer(a);
  CHECK(w.node.get()->number() == assignment_number{2, 1});
  w.control = old;
  w.go_away("router/2", "h2");
  w.advance(2s);
  const auto late = w.sent("router/0");
  REQUIRE(late.size() == 1);
  CHECK(late[0].number() == assignment_number{1, 2});
  CHECK_FALSE(w.node.offer(late[0]));
  CHECK(w.node.get()->number() == assignment_number{2, 1});
}

TEST_CASE("a full disk: nobody hears of what is not on it, and it is said") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  w.advance(2s);
  w.sent("router/0");
  w.state->disk.full = true;
  w.go_away("router/2", "h2");
  w.advance(25s);
  CHECK(w.sent("router/0").empty());
  CHECK(w.ask<control_report>(describe_control{}).problem == "the disk is full");
  const auto facts = w.ask<supervision::actor_report>(supervision::describe_actor{}).facts;
  CHECK(std::find(facts.begin(), facts.end(),
                  std::pair<std::string, std::string>{"problem", "the disk is full"}) !=
        facts.end());
  // One that comes hears what is persisted.
  w.come("requests/h7");
  CHECK(w.numbers("requests/h7") == numbers{{1, 1}});
  w.state->disk.full = false;
  w.advance(15s);
  CHECK(w.numbers("router/0") == numbers{{1, 1}, {1, 2}});  // the last one again, and the new one
  CHECK(w.ask<control_report>(describe_control{}).problem.empty());
}

TEST_CASE("loads move keys at the next look; those of a shard that begins anew are its own") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  w.advance(2s);
  const auto first = w.sent("router/0").at(0);
  const auto account = [&](const std::string& shard, double load, std::uint64_t gen) {
    shard_load l;
    l.shard = shard;
    l.generation = gen;
    l.goes_by = first.number();
    for (std::size_t i = 0; i < first.slices().size(); ++i)
      if (first.has(shard, first.slices()[i].first))
        l.ranges.push_back({first.slices()[i].first, first.last_of(i), load});
    return l;
  };
  for (const auto& s : three) w.tell(account(s, 0.1, 1));
  w.tell(account("router/1", 9, 0));  // late, of the one before
  w.advance(1min);
  CHECK(w.ask<control_report>(describe_control{}).number == first.number());
  w.come("router/1", 2);
  w.tell(account("router/1", 9, 2));
  w.advance(1min);
  const auto r = w.ask<control_report>(describe_control{});
  CHECK(r.number == assignment_number{1, 2});
  REQUIRE(r.made_ago);
  CHECK(*r.made_ago <= 1min);
  CHECK(r.churn > 0);
  CHECK(r.churn <= 0.09 + 1e-9);
}

TEST_CASE("a message that cannot be read does not end it") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  auto garble = [&]<class Schema>(Schema*) {
    w.office->send({control_name, 0}, {"router/0", 1}, unreadable<Schema>());
  };
#define GARBLE(Schema) garble(static_cast<msg::Schema*>(nullptr));
  TROUPE_ENVELOPE_SCHEMAS(GARBLE)
#undef GARBLE
  w.run();
  CHECK(w.ask<control_report>(describe_control{}).number == assignment_number{1, 1});
}

TEST_CASE("a series of crashes moves nothing more") {
  world w;
  w.start();
  for (const auto& s : three) w.come(s);
  w.advance(2s);
  w.come("router/1", 2);
  w.come("router/1", 3);
  w.go_away("router/1", "");
  w.sent("router/0");
  w.advance(5min);
  for (const auto& a : w.sent("router/0")) CHECK(a.number() == assignment_number{1, 1});
  CHECK(w.ask<control_report>(describe_control{}).problem.find("one after the other") !=
        std::string::npos);
}
