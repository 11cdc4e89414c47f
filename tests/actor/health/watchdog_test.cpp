#include "actors/health/watchdog_actor.hpp"
#include "messages/job_key.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

using namespace troupe;
using namespace troupe::health;
using namespace std::chrono_literals;

namespace {

struct scene : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  caf::actor dog = own(spawn_watchdog(system, {"h0", {}, {}, office}));
  caf::actor launcher = capture();
  caf::actor worker = capture();
  engine_account is;

  scene() {
    spdlog::set_level(spdlog::level::off);
    is.stepping = true;
    is.at_hand = 8;
    office->bind("both/p/h0.0", 1, worker);
  }
  /// A report as each second brings one; the verdicts that came of it.
  std::vector<engine_judged> report(std::uint64_t generation = 1,
                                    const std::string& engine = "both/p/h0.0") {
    caf::send_as(launcher, dog, engine_progress{engine, generation, is});
    advance(1s);
    return take<engine_judged>(launcher);
  }
  std::vector<engine_judged> reports(int count) {
    std::vector<engine_judged> all;
    for (int i = 0; i < count; ++i)
      for (auto& x : report()) all.push_back(std::move(x));
    return all;
  }
};

}  // namespace

TEST_CASE_METHOD(scene, "an engine that stops ticking is told of once, with the evidence") {
  for (int i = 0; i < 10; ++i) {
    is.ticks += 30;
    CHECK(report().empty());
  }
  const auto told = reports(20);
  REQUIRE(told.size() == 1);
  CHECK(told[0].engine == "both/p/h0.0");
  CHECK(told[0].generation == 1);
  CHECK(told[0].is.what == verdict::hung);
  CHECK_THAT(told[0].is.evidence, Catch::Contains("8 tokens"));
}

TEST_CASE_METHOD(scene, "what a hung engine says late is progress again") {
  for (int i = 0; i < 3; ++i) is.ticks += 30, report();
  CHECK(reports(10).size() == 1);
  is.ticks += 30;
  const auto told = report();
  REQUIRE(told.size() == 1);
  CHECK(told[0].is.what == verdict::healthy);
}

TEST_CASE_METHOD(scene,
                 "the next incarnation begins healthy, and the last one's late words don't count") {
  for (int i = 0; i < 3; ++i) is.ticks += 30, report();
  CHECK(reports(10).size() == 1);
  CHECK(report(2).empty());
  is.ticks += 30;
  CHECK(report(1).empty());
  CHECK(report(2).empty());
}

TEST_CASE_METHOD(scene, "an engine that forgets jobs again and again is told of as slow, once") {
  for (std::size_t i = 0; i < watch_limits{}.stalls_max; ++i) {
    CHECK(report().empty());
    ++is.stalls;
    ++is.steps;
  }
  std::vector<engine_judged> told;
  for (int i = 0; i < 20; ++i) {
    ++is.steps;
    ++is.tokens;  // its other requests get on
    for (auto& x : report()) told.push_back(std::move(x));
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].is.what == verdict::slow);
  CHECK_THAT(told[0].is.evidence, Catch::Contains("forgot"));
}

TEST_CASE_METHOD(scene, "an engine whose tokenisers stand is told of once, though it steps") {
  is.stepping = false;
  is.preparing = {2, 3, 40, 10ms, 900};
  is.transport.rounds = 1;
  std::vector<engine_judged> told;
  for (int i = 0; i < 20; ++i) {
    ++is.steps;
    ++is.transport.rounds;
    for (auto& x : report()) told.push_back(std::move(x));
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].is.what == verdict::hung);
  CHECK_THAT(told[0].is.evidence,
             Catch::Contains("tokeniser thread") && Catch::Contains("3 behind"));
}

TEST_CASE_METHOD(scene, "an engine whose KV transport stands is told of once, though it steps") {
  is.stepping = false;
  is.transport.rounds = 300;
  std::vector<engine_judged> told;
  for (int i = 0; i < 10; ++i) {
    ++is.steps;
    for (auto& x : report()) told.push_back(std::move(x));
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].is.what == verdict::hung);
  CHECK_THAT(told[0].is.evidence, Catch::Contains("KV transport"));
}

TEST_CASE_METHOD(scene, "engines are judged apart") {
  for (int i = 0; i < 3; ++i) is.ticks += 30, report(1, "a"), report(1, "b");
  auto still = is;
  std::vector<engine_judged> told;
  for (int i = 0; i < 10; ++i) {
    is = still;
    for (auto& x : report(1, "a")) told.push_back(std::move(x));
    is.ticks += 100 + static_cast<std::uint64_t>(i);
    for (auto& x : report(1, "b")) told.push_back(std::move(x));
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].engine == "a");
}

namespace {

struct probed : scene {
  probed() { is.stepping = false; }
  /// The probes that the worker was sent in so many seconds.
  std::vector<msg::envelope<msg::DecodeJob>> quiet(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      ++is.steps;  // it looks for work, and finds none
      for (auto& x : report()) verdicts.push_back(std::move(x));
    }
    std::vector<msg::envelope<msg::DecodeJob>> all;
    for (auto& [from, e] : take_envelopes<msg::DecodeJob>(worker)) all.push_back(e);
    return all;
  }
  void answer(const msg::envelope<msg::DecodeJob>& probe) {
    msg::view<msg::DecodeJob> in{probe};
    msg::draft<msg::TokenBatch> d;
    msg::write(d->initStreams(1)[0].initKey(), msg::read(in->getJob().getKey()));
    office->send({in->getJob().getReplyTo().cStr(), 0}, {"both/p/h0.0", 1},
                 std::move(d).freeze().value());
    run();
  }
  std::vector<engine_judged> verdicts;
};

}  // namespace

TEST_CASE_METHOD(probed, "an engine where nothing happens is asked for a token now and then") {
  for (int i = 0; i < 10; ++i) {
    const auto sent = quiet(11);
    REQUIRE(sent.size() == 1);
    msg::view<msg::DecodeJob> in{sent[0]};
    CHECK(in->getJob().getIsProbe());
    CHECK(in->getJob().getPriority() == 255);
    CHECK(in->getSource().isSelf());
    CHECK(in->getJob().getDeadlineMs() > 0);
    answer(sent[0]);
  }
  CHECK(verdicts.empty());
}

TEST_CASE_METHOD(probed, "an engine that answers no probe is called hung, with the evidence") {
  CHECK(quiet(30).size() == 2);
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].is.what == verdict::hung);
  CHECK_THAT(verdicts[0].is.evidence, Catch::Contains("had no answer"));
  // Its next life begins anew.
  office->bind("both/p/h0.0", 2, worker);
  is = {};
  for (int i = 0; i < 5; ++i) CHECK(report(2).empty());
}

TEST_CASE_METHOD(probed, "that an engine has the last probe still is no answer to the next one") {
  // How it can fail: one that takes probes and never answers refuses each second one, for ever.
  for (int i = 0; i < 30 && verdicts.empty(); ++i)
    for (const auto& sent : quiet(1)) {
      msg::view<msg::DecodeJob> in{sent};
      if (msg::read(in->getJob().getKey()).id.low == 1) continue;
      msg::draft<msg::Rejected> d;
      msg::write(d->initKey(), msg::read(in->getJob().getKey()));
      d->initFailure().setCode("probe_pending");
      office->send({"watchdog/h0", 0}, {"both/p/h0.0", 1}, std::move(d).freeze().value());
      run();
    }
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].is.what == verdict::hung);
}

TEST_CASE_METHOD(probed, "a refused probe is an answer, one of somebody else's is none") {
  auto sent = quiet(11);
  REQUIRE(sent.size() == 1);
  msg::view<msg::DecodeJob> in{sent[0]};
  auto key = msg::read(in->getJob().getKey());
  SECTION("refused") {
    msg::draft<msg::Rejected> d;
    msg::write(d->initKey(), key);
    d->initFailure().setCode("draining");
    office->send({"watchdog/h0", 0}, {"both/p/h0.0", 1}, std::move(d).freeze().value());
    run();
    quiet(8);
    CHECK(verdicts.empty());
  }
  SECTION("of an earlier watchdog") {
    ++key.id.high;
    msg::draft<msg::Rejected> d;
    msg::write(d->initKey(), key);
    office->send({"watchdog/h0", 0}, {"both/p/h0.0", 1}, std::move(d).freeze().value());
    run();
    quiet(20);
    CHECK(verdicts.size() == 1);
  }
}

TEST_CASE_METHOD(probed, "an engine whose requests get on is not asked") {
  for (int i = 0; i < 100; ++i) {
    ++is.tokens;
    CHECK(quiet(1).empty());
  }
}

TEST_CASE_METHOD(probed, "an engine that fails its probes itself is called broken") {
  is.faults = 1;
  auto answers = [&] {
    for (auto& [from, e] : take_envelopes<msg::DecodeJob>(worker)) {
      msg::view<msg::DecodeJob> in{e};
      msg::draft<msg::JobFailed> d;
      msg::write(d->initKey(), msg::read(in->getJob().getKey()));
      d->initFailure().setCode("garbage_output");
      office->send({"watchdog/h0", 0}, {"both/p/h0.0", 1}, std::move(d).freeze().value());
      run();
    }
  };
  report();
  for (int i = 0; i < 10; ++i) {
    ++is.faults;
    is.tokens += 100;
    for (auto& x : report()) verdicts.push_back(std::move(x));
    answers();
  }
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].is.what == verdict::broken);
  CHECK_THAT(verdicts[0].is.evidence, Catch::Contains("garbage_output"));
}

TEST_CASE_METHOD(scene, "a worker is called hung that never said anything to this watchdog, or not "
                        "since its link is back") {
  const auto in_reach = [&](std::uint64_t generation) {
    caf::send_as(launcher, dog, engine_in_reach{"both/p/h0.0", generation});
    run();
  };
  SECTION("a watchdog that has just begun") { in_reach(1); }
  SECTION("a link that was away for a moment") {
    report();
    caf::anon_send(dog, engine_out_of_reach{"both/p/h0.0", 1});
    in_reach(1);
  }
  SECTION("an older life has nothing to say") {
    report();
    advance(5s);
    in_reach(0);
    in_reach(1);
    advance(watch_limits{}.silence_max - 3s);
    CHECK(take<engine_judged>(launcher).size() == 1);
    return;
  }
  const auto limit = watch_limits{}.silence_max;
  for (auto waited = 0s; waited < limit - 1s; waited += 1s) {
    advance(1s);
    CHECK(take<engine_judged>(launcher).empty());
    in_reach(1);  // as each second: that is no account
  }
  advance(3s);
  const auto told = take<engine_judged>(launcher);
  REQUIRE(told.size() == 1);
  CHECK(told[0].generation == 1);
  CHECK(told[0].is.what == verdict::hung);
}

TEST_CASE_METHOD(scene, "a worker that says nothing over a link that stands is called hung, once") {
  report();
  SECTION("and so it is") {
    advance(watch_limits{}.silence_max + 3s);
    const auto told = take<engine_judged>(launcher);
    REQUIRE(told.size() == 1);
    CHECK(told[0].generation == 1);
    CHECK(told[0].is.what == verdict::hung);
    CHECK_THAT(told[0].is.evidence, Catch::Contains("said nothing"));
    advance(1min);
    CHECK(take<engine_judged>(launcher).empty());
  }
  SECTION("but not while it is out of reach") {
    caf::anon_send(dog, engine_out_of_reach{"both/p/h0.0", 1});
    advance(1min);
    CHECK(take<engine_judged>(launcher).empty());
    ++is.ticks;
    report();  // its link is back
    advance(watch_limits{}.silence_max + 3s);
    CHECK(take<engine_judged>(launcher).size() == 1);
  }
  SECTION("nor because the last life's end is told late") {
    report(2);
    caf::anon_send(dog, engine_out_of_reach{"both/p/h0.0", 1});
    advance(watch_limits{}.silence_max + 3s);
    CHECK(take<engine_judged>(launcher).size() == 1);
  }
  SECTION("nor because this process stood still") {
    scheduler.advance_time(10min);
    run();
    CHECK(take<engine_judged>(launcher).empty());
  }
}
