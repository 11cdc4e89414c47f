#include "actors/control/control_policy.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::control;
using namespace std::chrono_literals;

namespace {

// How it can fail: something is published that was not persisted, or under a term that others have
// seen; a lost shard keeps its keys, or one that is merely not seen yet loses them; a host that is
// cut off gives everything to itself; keys that kill are handed round; loads are counted twice, or
// are lost, where a shard begins anew.

const std::vector<std::string> three{"router/0", "router/1", "router/2"};
const std::vector<std::string> four{"router/0", "router/1", "router/2", "router/3"};
using time_point = control_policy::time_point;

directory::entry router(const std::string& name, std::uint64_t generation = 1,
                        msg::EntryState state = msg::EntryState::READY) {
  directory::entry e;
  e.name = name;
  e.generation = generation;
  e.role = msg::Role::ROUTER;
  e.state = state;
  return e;
}

double part_of(const assignment& a, const std::string& shard) {
  double sum = 0;
  for (std::size_t i = 0; i < a.slices().size(); ++i)
    for (auto r : a.slices()[i].replicas)
      if (a.shards()[r] == shard)
        sum += width(a.slices()[i].first, a.last_of(i)) /
               static_cast<double>(a.slices()[i].replicas.size());
  return sum;
}

struct host {
  std::vector<std::string> shards;
  control_limits limits;
  time_point now{1h};
  record disk;        ///< what is persisted
  bool full = false;  ///< nothing can be
  std::size_t writes = 0;
  control_policy policy;

  explicit host(std::vector<std::string> s, record before = {}, control_limits l = {})
      : shards(s), limits(l), disk(before), policy(std::move(s), l, std::move(before), now) {
    go();
  }

  /// Does what is due, and checks what must always hold.
  void go() {
    while (auto r = policy.due(now)) {
      ++writes;
      REQUIRE(r->last);
      CHECK(r->last->number().term == r->term);
      CHECK(r->term >= disk.term);
      const auto before = policy.published() ? policy.published()->number() : assignment_number{};
      if (full) {
        policy.written(error{"state_not_written", "the disk is full"}, now);
        CHECK((policy.published() ? policy.published()->number() : assignment_number{}) == before);
        continue;
      }
      CHECK(before < r->last->number());
      disk = *r;
      policy.written(ok, now);
      REQUIRE(policy.published());
      CHECK(policy.published()->number() == r->last->number());
    }
  }
  void pass(std::chrono::milliseconds t) {
    const auto until = now + t;
    while (policy.wake_at() <= until) {
      now = std::max(now, policy.wake_at());
      const auto wake = policy.wake_at();
      go();
      if (policy.wake_at() == wake) {  // nothing was due after all
        FAIL("it wakes for nothing");
      }
    }
    now = until;
    go();
  }
  void come(const directory::entry& e) {
    policy.changed({{e}, {}}, {}, now);
    go();
  }
  void all_come() {
    for (const auto& s : shards) come(router(s));
    for (const auto& s : shards) tell(account(s, 0));
    pass(limits.gather);
  }
  void go_away(const std::vector<directory::entry>& gone, const std::string& lost_host = {}) {
    policy.changed({{}, gone}, lost_host, now);
    go();
  }
  void tell(shard_load l) {
    policy.heard(std::move(l), now);
    go();
  }
  /// Each shard tells of `load` for each of its ranges, by what is published.
  shard_load account(const std::string& shard, double load, std::uint64_t generation = 1) {
    shard_load l;
    l.shard = shard;
    l.generation = generation;
    const auto& a = *policy.published();
    l.goes_by = a.number();
    for (std::size_t i = 0; i < a.slices().size(); ++i)
      if (a.has(shard, a.slices()[i].first))
        l.ranges.push_back({a.slices()[i].first, a.last_of(i), load});
    return l;
  }
  const assignment& published() { return *policy.published(); }
};

}  // namespace

TEST_CASE("a start takes a higher term, and persists it before it speaks") {
  host first{three};
  CHECK(first.disk.term == 1);
  CHECK(first.published().number() == assignment_number{1, 1});
  CHECK(first.published().slices() == assignment::uniform(three).slices());

  control_policy unwritten{three, {}, first.disk, first.now};
  const auto r = unwritten.due(first.now);
  REQUIRE(r);
  CHECK(r->term == 2);
  CHECK(unwritten.published() == nullptr);
  CHECK_FALSE(unwritten.due(first.now));  // one at a time
  CHECK_FALSE(unwritten.due(first.now + 1h));

  const host second{three, first.disk};
  CHECK(second.disk.term == 2);
  CHECK(second.policy.published()->number() == assignment_number{2, 1});
}

TEST_CASE("what was decided before is gone on with") {
  const auto odd = assignment::make({7, 3}, three, {{0, {1}}, {1'000, {0, 2}}}).value();
  host h{three, {9, odd}};
  CHECK(h.published().number() == assignment_number{10, 1});
  CHECK(h.published().slices() == odd.slices());
}

TEST_CASE("shards of another cluster file are replaced once all are seen") {
  const auto old =
      assignment::make({7, 3}, {"router/0", "router/9"}, {{0, {0}}, {1'000, {1}}}).value();
  host h{three, {7, old}};
  CHECK(h.published().shards() == old.shards());
  h.all_come();
  CHECK(h.published().shards() == three);
  for (const auto& s : three) CHECK(part_of(h.published(), s) > 0);
}

TEST_CASE("without a record a number is not given again that shards may know already") {
  host h{three};
  for (const auto& s : three) h.come(router(s));
  h.go_away({router("router/2")}, "h2");
  h.pass(10s);
  CHECK(h.published().number() == assignment_number{1, 1});
  SECTION("they tell what was published before the file was lost") {
    auto l = h.account("router/1", 0);
    l.goes_by = {1, 2};
    h.tell(l);
    CHECK(h.published().number() == assignment_number{2, 1});
    h.pass(1s);
    CHECK(h.published().number() == assignment_number{2, 1});
    h.tell(h.account("router/0", 0));
    h.pass(1s);
    CHECK(h.published().number() == assignment_number{2, 2});
  }
  SECTION("or they had their time") {
    h.pass(h.limits.patience - 10s);
    CHECK(h.published().number() == assignment_number{1, 2});
  }
  SECTION("with a record its own numbers are known") {
    host next{three, h.disk};
    for (const auto& s : three) next.come(router(s));
    next.go_away({router("router/2")}, "h2");
    next.pass(1s);
    CHECK(next.published().number() == assignment_number{2, 2});
  }
}

TEST_CASE("nobody is lost before all were seen, or had their time") {
  host h{three};
  h.come(router("router/0"));
  h.come(router("router/2"));
  h.pass(h.limits.patience - 1ms);
  CHECK(h.published().number() == assignment_number{1, 1});
  CHECK(h.policy.look(h.now).lost.empty());
  h.pass(2ms);
  CHECK(h.published().number() == assignment_number{1, 2});
  CHECK(part_of(h.published(), "router/1") == 0);
  CHECK(h.policy.look(h.now).lost == std::vector<std::string>{"router/1"});
}

TEST_CASE("without load and loss nothing is moved or written") {
  host h{three};
  h.all_come();
  const auto writes = h.writes;
  h.pass(1h);
  CHECK(h.writes == writes);
  CHECK(h.policy.look(h.now).problem.empty());
}

TEST_CASE("a lost shard's keys are given to others soon, and it gets some when it is back") {
  host h{three};
  h.all_come();
  const auto before = h.published();
  h.go_away({router("router/1")}, "h1");
  CHECK(h.published().number() == before.number());
  h.pass(h.limits.gather);
  CHECK(h.published().number() > before.number());
  CHECK(part_of(h.published(), "router/1") == 0);
  CHECK(part_of(h.published(), "router/0") == Approx(0.5).margin(0.05));
  // What the others had, they keep.
  for (std::size_t i = 0; i < before.slices().size(); ++i) {
    const auto& s = before.slices()[i];
    if (s.replicas != std::vector<std::uint16_t>{1})
      CHECK(h.published().replicas_of(s.first)[0] == s.replicas[0]);
  }

  h.come(router("router/1", 2, msg::EntryState::STARTING));
  h.pass(h.limits.gather);
  CHECK(part_of(h.published(), "router/1") == 0);  // it does not know its workers yet
  h.come(router("router/1", 2));
  h.pass(h.limits.gather);
  CHECK(part_of(h.published(), "router/1") == Approx(0.09).margin(0.02));
  h.pass(10min);
  CHECK(part_of(h.published(), "router/1") == Approx(1.0 / 3).margin(0.05));
}

TEST_CASE("a shard that comes back at once changes nothing") {
  host h{three};
  h.all_come();
  const auto writes = h.writes;
  h.go_away({router("router/1")}, "h1");
  h.pass(h.limits.gather / 2);
  h.come(router("router/1"));
  h.pass(1h);
  CHECK(h.writes == writes);
}

TEST_CASE("a shard that drains gives its keys away before it ends, which is no crash") {
  host h{four};
  h.all_come();
  for (std::uint64_t generation = 2; generation < 6; ++generation) {
    h.come(router("router/1", generation - 1, msg::EntryState::DRAINING));
    h.pass(h.limits.gather);
    CHECK(part_of(h.published(), "router/1") == 0);
    h.go_away({router("router/1", generation - 1, msg::EntryState::DRAINING)});
    h.come(router("router/1", generation));
    h.pass(h.limits.interval);
    CHECK(part_of(h.published(), "router/1") > 0);
  }
  CHECK(h.policy.look(h.now).problem.empty());
}

TEST_CASE("who sees less than half of the shards moves nothing") {
  host h{three};
  h.all_come();
  const auto before = h.published();
  h.go_away({router("router/1")}, "h1");
  h.go_away({router("router/2")}, "h2");
  h.pass(1h);
  CHECK(h.published().slices() == before.slices());
  CHECK(h.policy.look(h.now).problem.find("sees 1 of 3 shards") != std::string::npos);
  h.come(router("router/1"));
  h.come(router("router/2"));
  h.pass(1h);
  CHECK(h.published().slices() == before.slices());
  CHECK(h.policy.look(h.now).problem.empty());
}

TEST_CASE("nothing is amiss with a start before the directory has spoken, or should have") {
  host h{three};
  CHECK(h.policy.look(h.now).problem.empty());
  h.pass(h.limits.patience - 1ms);
  CHECK(h.policy.look(h.now).problem.empty());
  h.pass(1ms);
  CHECK(h.policy.look(h.now).problem.find("sees 0 of 3 shards") != std::string::npos);
}

TEST_CASE("keys that shards die of one after the other are given to nobody else") {
  host h{four};
  h.all_come();
  SECTION("each end told by the directory") {
    h.go_away({router("router/1")});
    h.pass(h.limits.gather);
    CHECK(part_of(h.published(), "router/1") == 0);
    const auto before = h.published();
    h.go_away({router("router/2")});
    h.pass(5min);
    for (const auto& s : before.slices())
      if (before.has("router/2", s.first)) CHECK(h.published().has("router/2", s.first));
    CHECK(part_of(h.published(), "router/2") == Approx(part_of(before, "router/2")));
    CHECK(h.policy.look(h.now).problem.find("one after the other") != std::string::npos);
    // Not for ever.
    h.pass(6min);
    CHECK(part_of(h.published(), "router/2") == 0);
  }
  SECTION("incarnations that replace each other") {
    h.come(router("router/1", 2));
    CHECK(h.policy.look(h.now).problem.empty());
    h.come(router("router/1", 3));
    CHECK(h.policy.look(h.now).problem.find("one after the other") != std::string::npos);
  }
  SECTION("one that does so again and again does not stop what goes on among others") {
    h.come(router("router/1", 2));
    h.come(router("router/1", 3));
    const auto before = h.published();
    for (const auto& s : four)
      h.tell(h.account(s, s == "router/0" ? 0.1 : 0.01, s == "router/1" ? 3 : 1));
    h.pass(5min);
    CHECK(part_of(h.published(), "router/0") < part_of(before, "router/0") - 0.05);
    CHECK(part_of(h.published(), "router/1") == Approx(part_of(before, "router/1")));
    for (const auto& s : before.slices())
      CHECK(h.published().has("router/1", s.first) == before.has("router/1", s.first));
    CHECK(h.policy.look(h.now).problem.find("what router/1 had") != std::string::npos);
  }
  SECTION("a host with two shards is one loss") {
    h.go_away({router("router/1"), router("router/2")}, "h1");
    h.pass(h.limits.gather);
    CHECK(part_of(h.published(), "router/1") == 0);
    CHECK(part_of(h.published(), "router/2") == 0);
  }
}

TEST_CASE("a host that was only out of sight is no crash, and one that is no more is") {
  host h{four};
  h.all_come();
  for (int i = 0; i < 3; ++i) {
    h.go_away({router("router/1")}, "h1");
    h.pass(10s);
    CHECK(part_of(h.published(), "router/1") == 0);
    h.come(router("router/1"));
    h.pass(10s);
    CHECK(h.policy.look(h.now).problem.empty());
  }
  for (std::uint64_t generation = 1; generation < 3; ++generation) {
    CHECK(h.policy.look(h.now).problem.empty());
    h.go_away({router("router/1", generation)}, "h1");
    h.pass(10s);
    h.come(router("router/1", generation + 1));
    h.pass(10s);
  }
  CHECK(h.policy.look(h.now).problem.find("one after the other") != std::string::npos);
}

TEST_CASE("load moves keys from the hottest shard, within the limit of a round") {
  host h{four};
  h.all_come();
  const auto before = h.published();
  for (const auto& s : four) h.tell(h.account(s, s == "router/0" ? 0.1 : 0.01));
  h.pass(h.limits.interval - h.limits.gather);
  const auto next = h.published();
  CHECK(next.number() == assignment_number{1, before.number().generation + 1});
  CHECK(part_of(next, "router/0") < part_of(before, "router/0"));
  CHECK(churn_between(before, next) <= h.limits.assigner.churn_max + 1e-9);
  CHECK(h.policy.look(h.now).churn == Approx(churn_between(before, next)).margin(1e-6));
  CHECK(h.policy.look(h.now).imbalance > 1);
  CHECK(h.policy.look(h.now).made == h.now);
}

TEST_CASE("shards that come and go move no more keys in an interval than its rounds may") {
  host h{four};
  h.all_come();
  for (const auto& s : four) h.tell(h.account(s, s == "router/0" ? 0.1 : 0.01));
  double moved = 0;
  auto number = h.published().number();
  const auto count = [&] {
    if (h.published().number() != number) moved += h.policy.look(h.now).churn;
    number = h.published().number();
  };
  for (int i = 0; i < 10; ++i) {
    h.come(router("router/3", 1, i % 2 == 0 ? msg::EntryState::DRAINING : msg::EntryState::READY));
    h.pass(h.limits.gather);
    count();
    CHECK((part_of(h.published(), "router/3") == 0 || i % 2 == 1));
  }
  CHECK(moved > 0.08);
  CHECK(moved <= h.limits.assigner.churn_max + 1e-9);
  // The look at the loads is not put off by that.
  h.pass(h.limits.interval - 11 * h.limits.gather);
  count();
  CHECK(moved > 0.16);
  CHECK(moved <= 2 * h.limits.assigner.churn_max + 1e-9);
}

TEST_CASE("accounts that are too old say nothing any more") {
  host h{four};
  h.all_come();
  h.pass(h.limits.interval - h.limits.gather - 1ms);  // a round is due in a moment
  const auto before = h.published();
  h.tell(h.account("router/0", 0.1));
  const auto moved = [&] { return churn_between(before, h.published()); };
  SECTION("young") {
    h.pass(1min);
    CHECK(moved() > 0);
  }
  SECTION("old") {
    // No round comes between: the shard is out of sight of a host that sees less than half.
    for (const auto* s : {"router/1", "router/2", "router/3"}) h.go_away({router(s)}, "x");
    h.pass(h.limits.account_age_max + 1s);
    CHECK(moved() == 0);
    for (const auto* s : {"router/1", "router/2", "router/3"}) h.come(router(s));
    h.pass(15min);  // until the losses are no series any more
    CHECK(moved() == 0);
  }
}

TEST_CASE("an ended incarnation of a shard that says nothing more has no load for ever") {
  host h{four};
  h.all_come();
  h.pass(h.limits.interval - h.limits.gather - 1ms);  // a round is due in a moment
  const auto before = h.published();
  h.tell(h.account("router/0", 0.1));
  h.come(router("router/0", 2));
  // No round comes between: this host sees less than half, and then it was a series.
  for (const auto* s : {"router/1", "router/2", "router/3"}) h.go_away({router(s)}, "x");
  h.pass(h.limits.account_age_max + 1s);
  for (const auto* s : {"router/1", "router/2", "router/3"}) h.come(router(s));
  h.pass(15min);
  CHECK(h.policy.look(h.now).problem.empty());
  CHECK(churn_between(before, h.published()) == 0);
}

TEST_CASE("what an ended incarnation carried fades as its successors' averages rise") {
  // Load that stays as it is, seen through averages over a window that begin anew with a restart:
  // nothing must move, neither at once (it looks cold) nor later (it is counted twice).
  host h{four};
  h.all_come();
  for (const auto& s : four) h.tell(h.account(s, 0.1));
  h.pass(h.limits.interval);
  const auto before = h.published();
  h.come(router("router/1", 2));
  const auto restarted = h.now;
  for (int i = 0; i < 60; ++i) {
    const auto since = std::chrono::duration<double>(h.now - restarted) / load_window;
    for (const auto& s : four)
      h.tell(s == "router/1" ? h.account(s, 0.1 * (1 - std::exp(-since)), 2) : h.account(s, 0.1));
    h.pass(10s);
  }
  CHECK(churn_between(before, h.published()) < 0.001);
}

TEST_CASE("an ended incarnation's account comes too late") {
  host h{four};
  h.all_come();
  for (const auto& s : four) h.tell(h.account(s, 0.1));
  const auto before = h.published();
  auto late = h.account("router/1", 100, 0);
  h.tell(late);
  h.pass(h.limits.interval);
  CHECK(churn_between(before, h.published()) < 0.001);
  late.generation = 2;  // the directory shows it later
  h.tell(late);
  h.pass(h.limits.interval);
  CHECK(churn_between(before, h.published()) < 0.001);
  late.shard = "router/7";  // and nobody else's counts
  late.generation = 9;
  h.tell(late);
  h.pass(h.limits.interval);
  CHECK(churn_between(before, h.published()) < 0.001);
}

TEST_CASE("what cannot be persisted is not published, and said; and tried again") {
  host h{three};
  h.all_come();
  const auto before = h.published();
  h.full = true;
  h.go_away({router("router/1")}, "h1");
  h.pass(1min);
  CHECK(h.published().number() == before.number());
  CHECK(h.policy.look(h.now).problem == "the disk is full");
  const auto writes = h.writes;
  h.pass(1min);
  CHECK(h.writes - writes >= 5);
  CHECK(h.writes - writes <= 7);
  h.full = false;
  h.pass(h.limits.write_again);
  CHECK(part_of(h.published(), "router/1") == 0);
  CHECK(h.policy.look(h.now).problem.empty());

  // Nor is a term.
  host starting{three, h.disk};
  CHECK(starting.policy.published());
  control_policy p{three, {}, h.disk, h.now};
  REQUIRE(p.due(h.now));
  p.written(error{"state_not_written", "no"}, h.now);
  CHECK(p.published() == nullptr);
  CHECK_FALSE(p.due(h.now));
  CHECK(p.wake_at() == h.now + control_limits{}.write_again);
  REQUIRE(p.due(h.now + control_limits{}.write_again));
}

TEST_CASE("a disk that takes nothing is told of") {
  control_policy p{three, {}, {}, time_point{1h}};
  REQUIRE(p.due(time_point{1h}));
  CHECK(p.look(time_point{1h + 10s}).problem.find("the disk") == std::string::npos);
  CHECK(p.look(time_point{1h + 11s}).problem.find("the disk does not take the state") == 0);
  p.written(ok, time_point{1h + 12s});
  CHECK(p.look(time_point{1h + 12s}).problem.find("the disk") == std::string::npos);
}

TEST_CASE("who finds shards with a higher number than its own takes a higher term, once") {
  host h{three};
  h.all_come();
  auto l = h.account("router/1", 0.1);
  l.goes_by = {7, 40};
  h.tell(l);
  CHECK(h.published().number() == assignment_number{8, 1});
  CHECK(h.disk.term == 8);
  l.goes_by = {7, 41};  // it has not heard yet
  h.tell(l);
  CHECK(h.published().number() == assignment_number{8, 1});
  // Somebody else is alive: two that outbid each other would never end.
  l.goes_by = {9, 1};
  h.tell(l);
  CHECK(h.policy.published() == nullptr);
  CHECK(h.policy.look(h.now).problem.find("there is another control host") != std::string::npos);
  h.pass(rival_gone_after - 1min);
  CHECK(h.disk.term == 8);
  // It is still at work.
  l.ranges.clear();
  l.goes_by = {9, 2};
  h.tell(l);
  h.pass(rival_gone_after - 1min);
  l.goes_by = {9, 2};  // nothing new
  h.tell(l);
  CHECK(h.policy.published() == nullptr);
  CHECK(h.disk.term == 8);
  // It is gone: the survivor goes on.
  h.pass(1min);
  CHECK(h.disk.term == 10);
  CHECK(h.published().number() == assignment_number{10, 1});
  CHECK(h.policy.look(h.now).problem.empty());
  h.go_away({router("router/2")}, "h2");
  h.pass(h.limits.gather);
  CHECK(h.published().number() == assignment_number{10, 2});
  // It was not: one bid, and silence again.
  l.goes_by = {11, 1};
  h.tell(l);
  CHECK(h.policy.published() == nullptr);
  h.pass(rival_gone_after - 1s);
  CHECK(h.disk.term == 10);
}

TEST_CASE("a bid that is outbid while it is written is not published") {
  host h{three};
  h.all_come();
  auto l = h.account("router/1", 0.1);
  for (std::uint64_t term : {7, 9}) {
    l.goes_by = {term, 1};
    h.tell(l);
  }
  h.now += rival_gone_after;
  REQUIRE(h.policy.due(h.now));
  CHECK(h.policy.published() == nullptr);
  l.goes_by = {12, 1};
  h.policy.heard(l, h.now);
  h.policy.written(ok, h.now);
  CHECK(h.policy.published() == nullptr);
  CHECK_FALSE(h.policy.due(h.now));
  CHECK(h.policy.wake_at() == h.now + rival_gone_after);
}

TEST_CASE("a record that is older than what was published by it is mended, too") {
  host h{three};
  h.all_come();
  auto l = h.account("router/1", 0.1);
  l.goes_by = {1, 40};
  h.tell(l);
  CHECK(h.published().number() == assignment_number{2, 1});
  // Nonsense is not heeded.
  l.goes_by = {~std::uint64_t{0}, 1};
  h.tell(l);
  CHECK(h.published().number() == assignment_number{2, 1});
}

TEST_CASE("when all shards are lost nothing is done") {
  host h{{"router/0", "router/1"}};
  h.all_come();
  const auto before = h.published();
  h.come(router("router/0", 1, msg::EntryState::DRAINING));
  h.come(router("router/1", 1, msg::EntryState::DRAINING));
  h.pass(1h);
  CHECK(h.published().number() == before.number());
}
