#include "actors/drain/drain_actor.hpp"
#include "tests/support/deterministic_system.hpp"
#include "tests/support/unreadable.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

using namespace troupe;
using namespace troupe::drain;
using namespace std::chrono_literals;

namespace {

struct scene : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor directory;
  caf::actor asker = capture();
  std::map<std::string, caf::actor> launchers;
  caf::actor drain;

  scene() {
    spdlog::set_level(spdlog::level::off);
    directory = own(
        directory::spawn_directory(system, "h0", link::random_process_id(), office, view));
    for (const std::string name : {"decode/d/h0.0", "decode/d/h0.1"}) {
      auto l = launchers[name] = capture();
      office->bind(launcher_of(name), 0, l);
      directory::entry e;
      e.name = name;
      e.generation = 1;
      e.role = msg::Role::DECODE;
      e.pool = "d";
      e.state = msg::EntryState::READY;
      caf::anon_send(directory, directory::set_entry{e});
    }
    run();
    drain_options o;
    o.host = "h0";
    o.first_run = 500;
    o.restart_max = 10s;
    o.office = office;
    o.directory = directory;
    drain = own(spawn_drain(system, std::move(o)));
    run();
  }

  void order(drain_order x) {
    x.id = 9;
    x.reply_to = asker;
    caf::anon_send(drain, std::move(x));
    run();
  }
  std::vector<std::uint64_t> orders_at(const std::string& engine) {
    std::vector<std::uint64_t> ids;
    for (auto& [from, e] : take_envelopes<msg::DrainOrder>(launchers.at(engine)))
      ids.push_back(msg::view<msg::DrainOrder> { e } -> getId());
    return ids;
  }
  void status(std::uint64_t id, const std::string& engine, msg::DrainPhase phase, bool over) {
    msg::draft<msg::DrainStatus> d;
    d->setId(id);
    d->setEngine(engine);
    d->setPhase(phase);
    d->setOver(over);
    office->send({"drain/h0", 0}, {launcher_of(engine), 0}, std::move(d).freeze().value());
    run();
  }
};

}  // namespace

TEST_CASE("an order for a pool goes to its launchers, and their words to whoever asked") {
  scene s;
  drain_order x;
  x.at = {target::kind::pool, "d"};
  x.within = 30s;
  x.move_after = 0s;
  x.then = msg::DrainEnd::RESTART;
  x.at_once = 1;
  s.order(x);
  auto got = s.take_envelopes<msg::DrainOrder>(s.launchers.at("decode/d/h0.0"));
  REQUIRE(got.size() == 1);
  msg::view<msg::DrainOrder> in{got[0].second};
  CHECK(in->getId() == 500);
  CHECK(std::string{in->getReplyTo().cStr()} == "drain/h0");
  CHECK(in->getDrain().getWithinMs() == 30'000);
  CHECK(in->getDrain().getMoveAfterMs() == 0);
  CHECK(in->getDrain().getThen() == msg::DrainEnd::RESTART);
  CHECK(s.orders_at("decode/d/h0.1").empty());
  CHECK(s.take<drain_progress>(s.asker).size() == 1);

  s.office->send({"drain/h0", 0}, {"x", 0}, test::unreadable<msg::DrainStatus>());
  s.status(499, "decode/d/h0.0", msg::DrainPhase::SERVING, true);  // another's
  CHECK(s.take<drain_progress>(s.asker).empty());
  s.status(500, "decode/d/h0.0", msg::DrainPhase::SERVING, true);
  CHECK(s.orders_at("decode/d/h0.1").size() == 1);
  s.status(500, "decode/d/h0.1", msg::DrainPhase::SERVING, true);
  auto told = s.take<drain_progress>(s.asker);
  REQUIRE(told.size() == 2);
  CHECK_FALSE(told[0].over);
  CHECK(told[1].over);
  CHECK(told[1].id == 9);
  CHECK(told[1].engines.size() == 2);
}

TEST_CASE("an order that means nothing, or finds nobody, says so") {
  scene s;
  drain_order x;
  x.at = {target::kind::host, "h7"};
  s.order(x);
  auto told = s.take<drain_progress>(s.asker);
  REQUIRE(told.size() == 1);
  CHECK(told[0].over);
  CHECK_THAT(told[0].refused, Catch::Contains("h7"));

  x.at = {target::kind::engine, "decode/d/h0.0"};
  s.order(x);
  s.advance(6s);  // its launcher does not answer
  told = s.take<drain_progress>(s.asker);
  REQUIRE(told.size() == 2);
  CHECK(told.back().over);
  CHECK_THAT(told.back().engines[0].failure, Catch::Contains("has not answered"));

  s.order(x);
  caf::anon_send(s.directory, directory::remove_entry{"decode/d/h0.0", 1});
  s.run();
  told = s.take<drain_progress>(s.asker);
  CHECK(told.back().engines[0].failure == "it left the directory");
}

TEST_CASE("undrain") {
  scene s;
  drain_order x;
  x.at = {target::kind::engine, "decode/d/h0.1"};
  x.undrain = true;
  s.order(x);
  auto got = s.take_envelopes<msg::DrainOrder>(s.launchers.at("decode/d/h0.1"));
  REQUIRE(got.size() == 1);
  CHECK(msg::view<msg::DrainOrder> { got[0].second } -> isUndrain());
}
