// Four gateways, each with its hub and its owner of budgets, and links that can be cut: a tenant's
// limit is one for all of them, whatever is cut. One clock, moved by the test.

#include "actors/admission/budgets_actor.hpp"
#include "actors/request/hub.hpp"
#include "tests/support/deterministic_system.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

// How it can fail: a limit that multiplies by gateways; one that is lost where the owner is; slices
// that are spent twice, by who was cut off and by who took over; a gateway that stays shut after it
// is back.

constexpr std::size_t gateways = 4;

/// A link's end: what comes goes to the other host's office, until it is cut.
caf::behavior wire(caf::event_based_actor* self, std::shared_ptr<link::post_office> there,
                   std::shared_ptr<bool> cut) {
  self->set_default_handler(caf::drop);
  return {[=](const msg::parcel& p) {
    if (!*cut) there->deliver(p);
  }};
}

struct quiet_sink final : request::client_sink {
  std::size_t* refused;
  explicit quiet_sink(std::size_t* r) : refused(r) {}
  void on_accepted(std::uint16_t, std::uint32_t, std::uint32_t, const std::string&) override {}
  void on_delta(std::uint16_t, msg::StreamDelta::Reader) override {}
  void on_finished(const request::totals&) override {}
  void on_failed(const request::failure& why) override {
    CHECK(why.code == "tenant_limit");
    CHECK(why.http_status == 429);
    CHECK(why.retry_after > 0ms);
    ++*refused;
  }
};

struct gateway {
  std::string host;
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor cluster;  ///< router and engine of this host's requests
  caf::actor budgets;
  request::hub hub;
  std::size_t refused = 0;
};

struct begun {
  double at;  ///< s
  std::size_t gateway;
};

struct world : deterministic_system {
  std::vector<gateway> all{gateways};
  std::shared_ptr<bool> cut[gateways][gateways];
  std::vector<begun> spent;  ///< what the router was asked for
  std::vector<troupe::admission::tenant_limits> limits{1};
  caf::actor directory = capture();
  std::uint64_t next_id = 1;
  double mu = 0;  ///< of each request

  world() {
    spdlog::set_level(spdlog::level::off);
    auto& l = limits[0];
    l.tenant = "acme";
    l.model = "m";
    l.guaranteed_per_minute = 100;
    l.burst = 5;
    l.floor_per_minute = 5;
    l.wait_max = 0ms;
    std::vector<std::string> hosts;
    for (std::size_t i = 0; i < gateways; ++i)
      hosts.push_back(all[i].host = "g" + std::to_string(i));
    for (std::size_t i = 0; i < gateways; ++i) {
      auto& g = all[i];
      auto snapshot = std::make_shared<directory::snapshot>();
      auto& e = (*snapshot)["both/p/w.0"];
      e.name = "both/p/w.0";
      e.generation = 7;
      e.role = msg::Role::BOTH;
      e.state = msg::EntryState::READY;
      e.model = "m";
      e.pool = "p";
      e.slots = 10'000;
      g.view->set(snapshot);
      g.cluster = capture();
      g.office->bind("router/0", 0, g.cluster);
      g.office->bind("both/p/w.0", 7, g.cluster);
      g.budgets = own(
          troupe::admission::spawn_budgets(system, {g.host, 10 + i, hosts, limits, g.office}));
      for (std::size_t k = 0; k < gateways; ++k) {
        if (k == i) continue;
        cut[i][k] = std::make_shared<bool>(false);
        const auto way = own(system.spawn(wire, all[k].office, cut[i][k]));
        for (const auto* what : {"requests/", "budgets/"})
          // The directory's numbers are others than those that the actors were started with.
          g.office->set_route(what + ("g" + std::to_string(k)), 1'000 + k, way);
      }
      request::hub_options o;
      o.host = g.host;
      o.generation = 20 + i;
      o.models = {"m"};
      o.office = g.office;
      o.view = g.view;
      o.directory = directory;
      o.limits.requests_max = 100'000;
      o.tenants = limits;
      o.gateways = hosts;
      o.step_tokens = {{"p", 1'000'000}};
      g.hub = request::make_hub(system, std::move(o));
      own(g.hub.actor);
    }
    run();
  }

  double seconds() { return std::chrono::duration<double>(now().time_since_epoch()).count(); }

  void isolate(std::size_t who, bool is) {
    for (std::size_t k = 0; k < gateways; ++k)
      if (k != who) *cut[who][k] = *cut[k][who] = is;
  }

  void submit(std::size_t at) {
    capnp::MallocMessageBuilder b;
    auto c = b.initRoot<msg::Completion>();
    c.setModel("m");
    c.getPrompt().setText(std::string(4'000, 'x'));
    auto content = std::make_shared<request::prompt_content>();
    content->words = capnp::messageToFlatArray(b);
    request::submission s;
    s.id = {99, next_id++};
    s.external_id = "x" + std::to_string(s.id.low);
    s.model = "m";
    s.tenant = "acme";
    s.prompts = {content};
    s.max_tokens = 100;
    s.timeout = 60s;
    s.client = std::make_shared<quiet_sink>(&all[at].refused);
    REQUIRE(all[at].hub.front->submit(std::move(s)));
  }

  /// Whoever asks for a route gets one, and its whole answer at once.
  void serve(std::size_t at) {
    auto& g = all[at];
    for (auto& [from, e] : take_envelopes<msg::RouteRequest>(g.cluster)) {
      msg::view<msg::RouteRequest> in{e};
      spent.push_back({seconds(), at});
      msg::draft<msg::Route> d;
      write(d->initKey(), msg::read(in->getKey()));
      d->setPlan(msg::TransferPlan::LOCAL);
      d->initDecode().setName("both/p/w.0");
      d->getDecode().setGeneration(7);
      d->setLease(next_id++);
      g.office->send({"requests/" + g.host, 0}, {"router/0", 0}, std::move(d).freeze().value());
    }
    run();
    for (auto& [from, e] : take_envelopes<msg::DecodeJob>(g.cluster)) {
      msg::view<msg::DecodeJob> in{e};
      const auto key = msg::read(in->getJob().getKey());
      msg::draft<msg::Accepted> a;
      write(a->initKey(), key);
      a->setWorker("both/p/w.0");
      a->setPromptTokens(prompt_tokens);
      g.office->send({"requests/" + g.host, 0}, {"both/p/w.0", 7}, std::move(a).freeze().value());
      msg::draft<msg::TokenBatch> t;
      t->setWorker("both/p/w.0");
      t->setGeneration(7);
      auto s = t->initStreams(1)[0];
      write(s.initKey(), key);
      auto ids = s.initIds(100);
      for (unsigned i = 0; i < 100; ++i) ids.set(i, 1);
      s.setFinish(msg::FinishReason::LENGTH);
      g.office->send({"requests/" + g.host, 0}, {"both/p/w.0", 7}, std::move(t).freeze().value());
      msg::draft<msg::JobDone> j;
      write(j->initKey(), key);
      j->setWorker("both/p/w.0");
      auto cost = j->initCost();
      cost.setComputed(prompt_tokens);
      cost.setSampled(100);
      g.office->send({"requests/" + g.host, 0}, {"both/p/w.0", 7}, std::move(j).freeze().value());
    }
    run();
    // Nobody reads these, and each look at the others would go past them.
    take_envelopes<msg::RouteRelease>(g.cluster);
    take_envelopes<msg::RenewLeases>(g.cluster);
    take_envelopes<msg::CancelJobs>(g.cluster);
  }
  static constexpr std::uint32_t prompt_tokens = 1'000;

  /// Everywhere so many requests a second.
  void run_for(std::chrono::milliseconds t, double per_second) {
    for (auto left = t; left > 0ms; left -= 100ms) {
      for (std::size_t g = 0; g < gateways; ++g) {
        for (wanted[g] += per_second / 10; wanted[g] >= 1; wanted[g] -= 1) submit(g);
        run();
        serve(g);
      }
      advance(100ms);
      for (std::size_t g = 0; g < gateways; ++g) serve(g);
    }
  }
  double wanted[gateways] = {};

  double between(double from, double to, std::size_t without = gateways) const {
    double n = 0;
    for (const auto& s : spent)
      if (s.at >= from && s.at < to && s.gateway != without) n += mu;
    return n;
  }
  double worst_window(double length) const {
    double worst = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < spent.size(); ++i) {
      while (spent[first].at <= spent[i].at - length) ++first;
      worst = std::max(worst, mu * static_cast<double>(i - first + 1));
    }
    return worst;
  }
  /// What the tenant was charged in all, by the gateways' own accounts.
  double charged() {
    double sum = 0;
    for (auto& g : all) {
      caf::scoped_actor me{system};
      auto asked = me->request(g.hub.actor, caf::infinite, request::describe_requests{});
      run();
      asked.receive(
          [&](const request::requests_report& r) {
            for (const auto& t : r.tenants) sum += t.charged_mu;
          },
          [](const caf::error&) {});
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("four gateways, one cut off for a minute: never above 110 % in any 60 s") {
  for (const bool owner_too : {false, true}) {
    world w;
    w.mu = 1;
    // What a request is charged tells how many make the limit.
    w.run_for(10s, 10);
    w.advance(5s);
    w.mu = w.charged() / static_cast<double>(w.spent.size());
    REQUIRE(w.mu > 0);
    const auto order = troupe::admission::owner_order("acme/m", {"g0", "g1", "g2", "g3"});
    const auto owner = static_cast<std::size_t>(order.front()[1] - '0');
    const auto off = owner_too ? owner : (owner + 1) % gateways;
    // Half more than what is allowed.
    const double rate = 100.0 / 60 / w.mu / gateways * 1.5;
    w.run_for(65s, rate);
    const double t = w.seconds();
    w.isolate(off, true);
    w.run_for(60s, rate);
    w.isolate(off, false);
    w.run_for(65s, rate);

    const double reachable = w.between(t + 5, t + 60, off) / 55 * 60;
    const double alone = w.between(t + 5, t + 60) - w.between(t + 5, t + 60, off);
    std::printf("cut off: gateway %zu%s, %.4f MU a request: most in 60 s %.1f MU, reachable side "
                "%.1f MU/min, the isolated one %.1f MU in 55 s\n",
                off, owner_too ? " (the owner)" : "", w.mu, w.worst_window(60), reachable, alone);
    CHECK(w.worst_window(60) <= 110);
    CHECK(reachable >= 90);
    CHECK(alone >= 3);
    CHECK(alone <= 6);
    CHECK(w.between(t + 80, t + 120) >= 0.9 * 100 * 40 / 60);
    for (const auto& g : w.all) CHECK(g.refused > 0);
    // And by their own accounts, all that was begun was charged.
    w.advance(5s);
    CHECK(w.charged() == Approx(w.mu * static_cast<double>(w.spent.size())).epsilon(0.001));
  }
}

TEST_CASE("a tenant whose traffic comes to one gateway has all of its limit there") {
  world w;
  w.mu = 1;
  w.run_for(5s, 10);
  w.advance(5s);
  w.mu = w.charged() / static_cast<double>(w.spent.size());
  w.advance(5s);
  const double t = w.seconds();
  const double rate = 100.0 / 60 / w.mu * 2;
  double wanted = 0;
  for (int i = 0; i < 600; ++i) {
    for (wanted += rate / 10; wanted >= 1; wanted -= 1) w.submit(2);
    w.run();
    w.serve(2);
    w.advance(100ms);
    w.serve(2);
  }
  CHECK(w.between(t, t + 60) >= 95);
  CHECK(w.worst_window(60) <= 110);
}
