// A decode worker drains: its streams go on at another one, with their KV.

#include "actors/workers/move_policy.hpp"
#include "tests/actor/workers/fleet.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

fleet::wish long_wish() {
  fleet::wish w;
  w.prompt = std::string(700, 'p');
  w.max_tokens = 60;
  return w;
}

/// A prefill worker and two decode workers, and a stream at one of them.
struct moving_fleet : fleet {
  machine& prefill = add("prefill/p/a.0", 1, msg::Role::PREFILL);
  machine& d0 = add("decode/p/a.0", 2, msg::Role::DECODE);
  machine& d1 = add("decode/p/a.1", 3, msg::Role::DECODE);
  asked x;

  explicit moving_fleet(const wish& w = long_wish()) : x(ask(w)) {}

  machine& at() { return d0.host->routes() > 0 ? d0 : d1; }
  machine& other() { return &at() == &d0 ? d1 : d0; }
  std::size_t sampled() { return x.a->ids[{0, 0}].size(); }
  void run_until(std::size_t tokens) {
    for (int i = 0; i < 10'000 && sampled() < tokens; ++i) turn();
    REQUIRE(sampled() >= tokens);
  }
  /// As its launcher does: routers are told first.
  void hold(machine& m, std::chrono::milliseconds within = 60s,
            std::chrono::milliseconds move_after = 0ms) {
    auto e = view->get()->at(m.name);
    e.state = msg::EntryState::DRAINING;
    caf::anon_send(directory, directory::set_entry{e});
    msg::draft<msg::EngineCommand> d;
    auto h = d->initHold();
    h.setWithinMs(static_cast<std::uint32_t>(within.count()));
    h.setMoveAfterMs(static_cast<std::uint32_t>(move_after.count()));
    office->send({m.name, m.generation}, {"launcher/test", 0}, *std::move(d).freeze());
    run();
  }
  /// The stream has some tokens; its worker has drained for so many turns.
  void drain_for(int some_turns) {
    run_until(10);
    hold(at());
    for (int i = 0; i < 3; ++i) scheduler.advance_time(50ms);
    turns(some_turns);
  }
  /// Of all jobs that the requests take for open at present.
  void renew_leases() {
    for (const auto& [worker, keys] : hub.jobs->all()) {
      msg::draft<msg::RenewLeases> d;
      auto list = d->initKeys(static_cast<unsigned>(keys.size()));
      for (unsigned i = 0; i < list.size(); ++i) write(list[i], keys[i]);
      office->send({worker.first, worker.second}, {"requests/h", 0}, *std::move(d).freeze());
    }
  }
  std::string timeline() { return hub.front->timeline_json(x.name); }
};

}  // namespace

TEST_CASE("a stream moves at any token, and nothing is computed twice or lost") {
  const auto expected = reference(long_wish());
  for (std::size_t tokens = 1; tokens < 58; tokens += 3) {
    INFO("tokens: " << tokens);
    moving_fleet f;
    f.run_until(tokens);
    auto& from = f.at();
    auto& to = f.other();
    f.hold(from);
    const auto prefilled = f.prefill.host->engine().gauges().prefilled;
    f.advance(workers::watch_interval + 20ms);  // it looks at its streams now and then
    f.finish({f.x.a});
    REQUIRE(f.x.a->end);
    CHECK(f.x.a->ids == expected->ids);
    CHECK(f.x.a->text == expected->text);
    CHECK(to.host->engine().gauges().prefilled == 0);
    CHECK(from.host->engine().gauges().prefilled == 0);
    CHECK(f.prefill.host->engine().gauges().prefilled == prefilled);
    CHECK(to.host->engine().gauges().sampled > 0);
    CHECK(from.host->engine().gauges().sampled + to.host->engine().gauges().sampled == 60);
    CHECK_THAT(f.timeline(), Catch::Contains("\"plan\":\"move\""));
    f.check_all_idle();
  }
}

TEST_CASE("a renewal at any moment of a move does not end it") {
  const auto expected = reference(long_wish());
  for (int after = 0; after < 20; ++after) {
    INFO("turns: " << after);
    moving_fleet f;
    f.drain_for(after);
    f.renew_leases();
    f.finish({f.x.a});
    REQUIRE(f.x.a->end);
    CHECK(f.x.a->ids == expected->ids);
    CHECK_THAT(f.timeline(), Catch::Contains("\"plan\":\"move\""));
    f.check_all_idle();
  }
}

TEST_CASE("a stream that is certain to end in time stays") {
  moving_fleet f;
  f.run_until(40);
  f.advance(1s);  // a report interval: rates are known
  auto& from = f.at();
  auto& to = f.other();
  f.hold(from, 3600s, 3600s);
  f.advance(workers::watch_interval + 20ms);
  f.finish({f.x.a});
  CHECK(to.host->engine().gauges().sampled == 0);
  CHECK_THAT(f.timeline(), !Catch::Contains("\"plan\":\"move\""));
}

TEST_CASE("with no other place the stream goes on, and moves when there is one") {
  const auto expected = reference(long_wish());
  moving_fleet f;
  f.run_until(5);
  auto& from = f.at();
  auto& to = f.other();
  f.kill(to);
  f.hold(from);
  f.advance(200ms);
  f.turns(10);
  CHECK_FALSE(f.x.a->over());
  f.add(to.name, 9, msg::Role::DECODE);
  f.advance(workers::move_again_after + 200ms);
  f.finish({f.x.a});
  REQUIRE(f.x.a->end);
  CHECK(f.x.a->ids == expected->ids);
  CHECK_THAT(f.timeline(), Catch::Contains("\"plan\":\"move\""));
  f.check_all_idle();
}

TEST_CASE("either worker dies at any moment of a move: the answer is the same") {
  const auto expected = reference(long_wish());
  const bool source = GENERATE(true, false);
  for (int after = 0; after < 40; ++after) {
    INFO("turns: " << after << (source ? ", the source" : ", the destination"));
    moving_fleet f;
    f.run_until(10);
    auto& from = f.at();
    auto& to = f.other();
    f.add("decode/p/a.2", 7, msg::Role::DECODE);
    f.hold(from);
    for (int i = 0; i < 3; ++i) f.scheduler.advance_time(50ms);
    f.turns(after);
    f.kill(source ? from : to);
    f.finish({f.x.a});
    REQUIRE(f.x.a->end);
    CHECK(f.x.a->ids == expected->ids);
    f.check_all_idle();
  }
}

TEST_CASE("cancelled at any moment of a move, everybody is free") {
  for (int after = 0; after < 40; ++after) {
    INFO("turns: " << after);
    moving_fleet f;
    f.drain_for(after);
    f.hub.front->cancel(f.x.id, "the client went away");
    f.check_all_idle();
    CHECK_FALSE(f.x.a->failure);
  }
}

TEST_CASE("the transport breaks in a move: the stream is computed again elsewhere") {
  const auto expected = reference(long_wish());
  moving_fleet f;
  f.run_until(10);
  f.hold(f.at());
  for (int i = 0; i < 3; ++i) f.scheduler.advance_time(50ms);
  f.fabric->fail_pieces(1);
  f.finish({f.x.a});
  REQUIRE(f.x.a->end);
  CHECK(f.x.a->ids == expected->ids);
  f.check_all_idle();
}

TEST_CASE("several choices are not moved but end with the drain, and are computed again") {
  auto w = long_wish();
  w.choices = 2;
  const auto expected = reference(w);
  moving_fleet f(w);
  f.run_until(10);
  f.hold(f.at(), 300ms, 0ms);
  f.advance(400ms);
  f.finish({f.x.a});
  REQUIRE(f.x.a->end);
  CHECK(f.x.a->ids == expected->ids);
  CHECK_THAT(f.timeline(), !Catch::Contains("\"plan\":\"move\""));
  f.check_all_idle();
}

TEST_CASE("which streams are to move") {
  using workers::should_move;
  CHECK_FALSE(should_move({100, 200}, {10s, false, 20}));  // 100 tokens at most, 160 fit
  CHECK(should_move({100, 300}, {10s, false, 20}));
  CHECK(should_move({100, 200}, {10s, true, 20}));
  CHECK(should_move({100, 200}, {10s, false, 0}));  // nobody knows
  CHECK(should_move({0, 200}, {0s, false, 1'000}));
  CHECK_FALSE(should_move({200, 200}, {0s, false, 0}));  // it is as good as done
}
