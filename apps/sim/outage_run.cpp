#include "apps/sim/outage_run.hpp"

#include "apps/sim/books.hpp"
#include "apps/sim/planting.hpp"
#include "apps/sim/report.hpp"

#include "actors/drain/drain_actor.hpp"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t machines = 20;
constexpr const char* control_host = "control";
/// The last one has no shard of the router, so that its node may be started again while requests go
/// on elsewhere.
constexpr const char* gateway_hosts[] = {"g0", "g1", "g2", "g3"};
constexpr std::size_t shards = 3;

constexpr auto start_limit = 30'000ms;
/// Under load before the outage: the control host has moved keys by then.
constexpr auto warm_up = 40'000ms;
/// Under load after it.
constexpr auto goes_on = 30'000ms;
constexpr auto end_limit = 200'000ms;
constexpr auto rest_limit = 60'000ms;
constexpr auto look_interval = 100ms;
/// A request counts as not done for so long after its last token.
constexpr auto finishing = 250ms;
constexpr auto machine_away_max = 30'000ms;
constexpr auto drain_within = 20'000ms;
/// Until an engine has something to do, so that its end costs somebody something.
constexpr auto busy_interval = 5ms;
constexpr auto node_restart = 2'000ms;
/// Of the model: so slow that at any time there are streams under way at many engines.
constexpr double decode_step_us = 25'000;
constexpr double prefill_tokens_per_second = 4'000;
/// Requests of sessions, most of them of a few, so that the shards' loads differ and keys move.
constexpr double with_session = 0.7;
constexpr std::uint64_t sessions = 60;

config::cluster make_cluster() {
  config::cluster c;
  c.section.id = "outage";
  std::uint16_t port = 7'000;
  const auto host = [&](std::string name) {
    config::host h;
    h.name = std::move(name);
    h.address = fmt::format("10.0.0.{}", c.hosts.size() + 1);
    h.port = port++;
    c.hosts.push_back(std::move(h));
  };
  host(control_host);
  for (const auto* g : gateway_hosts) host(g);
  for (std::size_t i = 0; i < machines; ++i) host(fmt::format("w{:02}", i));
  config::model m;
  m.name = "m";
  m.context_tokens = context_tokens;
  c.models.push_back(m);
  const auto pool = [&](const char* name, config::pool_role role, std::size_t first,
                        std::size_t step) {
    config::pool p;
    p.name = name;
    p.model = "m";
    p.role = role;
    for (std::size_t i = first; i < machines; i += step)
      p.hosts.push_back(fmt::format("w{:02}", i));
    p.slots = 8;
    p.kv_tokens = 8'192;
    p.step_tokens = 128;
    p.cached_prefixes = 8;
    p.engine = config::engine_kind::simulated;
    c.pools.push_back(std::move(p));
  };
  pool("p", config::pool_role::prefill, 0, 2);
  pool("d", config::pool_role::decode, 0, 1);
  pool("x", config::pool_role::both, 1, 2);
  for (std::size_t i = 0; i < shards; ++i) {
    config::router r;
    r.host = gateway_hosts[i];
    c.routers.push_back(std::move(r));
  }
  c.transfer.kind = "host";
  c.transfer.piece_bytes_max = 8U << 10U;
  c.transfer.buffer_bytes = 8 * (8U << 10U);
  auto& control = c.control.emplace();
  control.host = control_host;
  control.state = "control.db";
  control.interval = 5'000ms;
  return c;
}

std::vector<std::size_t> answered_shapes() {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < catalogue().size(); ++i)
    if (catalogue()[i].refusal.empty()) all.push_back(i);
  return all;
}

std::string text(const control::assignment_number& n) {
  return fmt::format("{}.{}", n.term, n.generation);
}

class outage {
 public:
  explicit outage(const outage_options& o)
      : options_(o), random_(o.seed, 21), world_(o.seed, make_cluster(), o.readable) {
    world_.when().on_message = [this](const caf::type_erased_tuple& m) { phases_.sees(m); };
    world_.kv().on_control = [this](std::span<const std::byte> b) { phases_.sees_control(b); };
    phases_.on_change = [this](const msg::request_id& id, const phase_watch::state& s) {
      if (s.now == phase::finishing)
        world_.when().after(finishing, no_process, [this, id] { phases_.ends(id); });
    };
    world_.on_engine_started = [this](engine_process& e) {
      e.on_killed_by_launcher = [this](engine_process& killed) {
        record_.kills.push_back({killed.name(), world_.now(), false});
      };
    };
    world_.on_node_down = [this](process_id p) {
      for (const auto& c : clients_)
        if (c->submitted && !c->over() && c->gateway == p) {
          c->cut_off = true;
          c->ended = world_.now();
          phases_.ends(c->id);
        }
    };
    world_.on_node_lost = [this](const std::string& host, const std::string& why) {
      find("nodes", host, "gave up: " + why);
    };
    world_.pace().decode_step_us = decode_step_us;
    world_.pace().prefill_tokens_per_second = prefill_tokens_per_second;
  }

  outage_result run() {
    for (const auto& host : world_.hosts()) world_.start_node(host);
    if (!wait(start_limit, [this] { return not_ready(world_).empty(); }))
      find("readiness", "", "the cluster was not ready at its start");
    loading_ = true;
    arrive();
    pass(warm_up);
    if (!wait(rest_limit, [this] { return all_go_by_the_disk(); }))
      find("assignments", "", "not all had gone by one assignment before the outage");
    lose_control();
    wait(options_.outage, [] { return false; });
    look_back();
    return_control();
    pass(goes_on);
    loading_ = false;
    world_.run(end_limit, [this] { return all_over(); });
    come_to_rest();
    return result();
  }

 private:
  void find(std::string checker, std::string subject, std::string what) {
    findings_.push_back({std::move(checker), std::move(subject), std::move(what)});
  }
  void pass(std::chrono::milliseconds time) {
    world_.run(time, [] { return false; });
  }
  /// Looks now and then: to ask after every step would take as long as the steps.
  template <class Done>
  bool wait(std::chrono::milliseconds at_most, Done&& done) {
    const auto until = world_.now() + at_most;
    while (!done()) {
      if (world_.now() >= until) return false;
      pass(look_interval);
    }
    return true;
  }
  template <class Line>
  void tell(Line&& line) {
    world_.log().tell(world_.now(), "FAULT", std::forward<Line>(line));
  }

  // -- load ------------------------------------------------------------------------
  void arrive() {
    if (!loading_) return;
    const std::chrono::nanoseconds mean = 1'000'000'000ns / options_.requests_per_second;
    world_.when().after(random_.between(0ns, 2 * mean), no_process, [this] {
      ask();
      arrive();
    });
  }

  void ask() {
    auto r = std::make_shared<client_record>();
    r->number = clients_.size();
    r->id = {options_.seed, r->number + 1};
    r->name = "r" + std::to_string(r->number);
    r->plan.shape = shapes_[random_.index(shapes_.size())];
    if (random_.chance(with_session)) {
      const auto among = 1 + random_.below(sessions);
      r->plan.session = "s" + std::to_string(random_.below(among));
    }
    std::vector<const char*> in_service;
    for (const auto* g : gateway_hosts)
      if (g != out_of_service_) in_service.push_back(g);
    r->host = in_service[random_.index(in_service.size())];
    clients_.push_back(r);
    if (!world_.node_at(r->host).up()) {
      r->refused = true;
      return;
    }
    phases_.begins(r->id);
    world_.when().within(world_.node_at(r->host).process, [&] { submit(world_, r, phases_); });
  }

  bool all_over() {
    while (over_ < clients_.size() && clients_[over_]->over()) ++over_;
    return over_ == clients_.size();
  }
  bool any_open_at(const std::string& host) {
    all_over();
    return std::any_of(clients_.begin() + static_cast<std::ptrdiff_t>(over_), clients_.end(),
                       [&](const auto& c) { return c->host == host && !c->over(); });
  }

  // -- the outage ------------------------------------------------------------------
  bool all_go_by_the_disk() {
    read_books(world_, record_);
    return record_.persisted != control::assignment_number{} && check_assignments(record_).empty();
  }

  std::pair<std::uint64_t, std::uint64_t> asked_and_misrouted() const {
    std::pair<std::uint64_t, std::uint64_t> sum;
    for (const auto& s : record_.shards) {
      sum.first += s.requests;
      sum.second += s.misrouted;
    }
    return sum;
  }

  void lose_control() {
    read_books(world_, record_);
    result_.before = record_.persisted;
    asked_before_ = asked_and_misrouted();
    for (const auto* e : world_.living_engines()) generations_[e->name()] = e->generation();
    result_.engines = generations_.size();
    control_away_ = true;
    tell([] { return std::string{"the control host dies"}; });
    world_.kill_node(control_host, false);
    const auto later = [this](double share, auto what) {
      const std::chrono::nanoseconds whole = options_.outage;
      world_.when().after(std::chrono::nanoseconds{static_cast<std::int64_t>(
                              static_cast<double>(whole.count()) * share)},
                          no_process, what);
    };
    // With 40 engines these are one in ten.
    later(0.2, [this] { replace(false, &outage::by_drain); });
    later(0.4, [this] { replace(false, &outage::by_kill); });
    if (options_.gateway_restarts) later(0.5, [this] { take_gateway_out(); });
    later(0.7, [this] { replace(true, &outage::by_loss); });
  }

  /// Engines, or their machines, that have something to do.
  std::vector<std::string> busy(bool their_machines) {
    std::vector<std::string> all;
    for (const auto* e : world_.living_engines())
      if (!touched_.contains(e->host()) && e->at_work())
        all.push_back(their_machines ? e->host() : e->name());
    return all;
  }
  void count_hit(const std::string& engine) {
    for (const auto& [id, s] : phases_.all())
      if (s.prefill == engine || s.decode == engine) ++result_.hit;
  }

  /// With one of those, as soon as there is one.
  void replace(bool machine, void (outage::*how)(const std::string& which)) {
    const auto all = busy(machine);
    if (all.empty())
      return world_.when().after(busy_interval, no_process,
                                 [this, machine, how] { replace(machine, how); });
    (this->*how)(all[random_.index(all.size())]);
  }

  void by_drain(const std::string& engine) {
    touched_.insert(world_.engine(engine)->host());
    by_order_.insert(engine);
    tell([&] { return engine + " is drained, and started again"; });
    drain::drain_order o;
    o.at = {drain::target::kind::engine, engine};
    o.within = drain_within;
    o.move_after = 0ms;
    o.then = msg::DrainEnd::RESTART;
    const auto p = world_.node_at(gateway_hosts[0]).process;
    for (const auto& d : world_.when().actors_named(p, "drain"))
      world_.when().within(p, [&] { caf::anon_send(d, o); });
  }

  void by_kill(const std::string& engine) {
    touched_.insert(world_.engine(engine)->host());
    tell([&] { return engine + " is killed"; });
    count_hit(engine);
    world_.engine(engine)->exit({true, SIGKILL});
  }

  void by_loss(const std::string& host) {
    touched_.insert(host);
    tell([&] { return "machine " + host + " is lost"; });
    for (const auto* e : world_.living_engines())
      if (e->host() == host) count_hit(e->name());
    world_.kill_node(host, true);
    const std::chrono::milliseconds tenth = options_.outage / 10;
    world_.when().after(std::min(machine_away_max, tenth), no_process,
                        [this, host] { world_.start_node(host); });
  }

  void take_gateway_out() {
    out_of_service_ = gateway_hosts[shards];
    tell([&] { return std::string{out_of_service_} + " is taken out of service"; });
    restart_gateway();
  }
  void restart_gateway() {
    if (any_open_at(out_of_service_))
      return world_.when().after(look_interval, no_process, [this] { restart_gateway(); });
    world_.kill_node(out_of_service_, false);
    world_.when().after(node_restart, no_process, [this] {
      world_.start_node(out_of_service_);
      result_.gateway_began = goes_by(out_of_service_);
      put_gateway_back();
    });
  }
  void put_gateway_back() {
    const auto models = world_.node_at(out_of_service_).tree->data().front()->models();
    if (models.empty() || !models.front().ready)
      return world_.when().after(look_interval, no_process, [this] { put_gateway_back(); });
    tell([&] { return std::string{out_of_service_} + " is in service again"; });
    out_of_service_ = nullptr;
    back_since_ = world_.now();
    await_learning();
  }
  /// By its first requests: nobody else tells it.
  void await_learning() {
    if (!control_away_) return;
    if (goes_by(gateway_hosts[shards]) != result_.before)
      return world_.when().after(look_interval, no_process, [this] { await_learning(); });
    result_.learnt_within = std::chrono::duration_cast<std::chrono::milliseconds>(world_.now() -
                                                                                  back_since_);
  }
  control::assignment_number goes_by(const std::string& host) {
    const auto& n = world_.node_at(host);
    return n.up() ? n.tree->data().shards()->get()->number() : control::assignment_number{};
  }

  /// At the outage's end.
  void look_back() {
    read_books(world_, record_);
    asked_after_ = asked_and_misrouted();
    result_.asked = asked_after_.first - asked_before_.first;
    result_.misrouted = asked_after_.second - asked_before_.second;
    for (const auto& [name, generation] : generations_) {
      const auto* e = world_.engine(name);
      if (e == nullptr || !e->serving()) {
        find("replaced", name, "does not serve at the outage's end");
        continue;
      }
      if (e->generation() == generation) continue;
      ++result_.replaced;
      ++(by_order_.contains(name) ? result_.drained : result_.killed);
    }
    if (result_.replaced * 10 != result_.engines)
      find("replaced", "", fmt::format("{} of {} engines", result_.replaced, result_.engines));
    if (record_.persisted != result_.before)
      find("assignments", "", "there is another assignment, which nobody can have made");
    for (const auto* g : gateway_hosts)
      if (goes_by(g) != result_.before)
        find("assignments", g,
             "goes by assignment " + text(goes_by(g)) + " at the outage's end, and not by " +
                 text(result_.before));
    if (!options_.gateway_restarts) return;
    if (back_since_ == time_point{})
      find("readiness", gateway_hosts[shards], "was not in service again in time");
    result_.gateway_learnt = goes_by(gateway_hosts[shards]);
  }

  void return_control() {
    control_away_ = false;
    tell([] { return std::string{"the control host comes back"}; });
    world_.start_node(control_host);
  }

  // -- at its end ------------------------------------------------------------------
  void come_to_rest() {
    wait(rest_limit, [this] {
      record_.not_ready = not_ready(world_);
      read_books(world_, record_);
      return record_.not_ready.empty() && check_books(record_).empty() &&
             check_assignments(record_).empty();
    });
    result_.after = record_.persisted;
    result_.misrouted_after = asked_and_misrouted().second - asked_after_.second;
    if (result_.after <= result_.before)
      find("assignments", control_host,
           "has made none after the outage: the last one is still " + text(result_.after));
  }

  outage_result result() {
    auto& x = result_.run;
    x.seed = options_.seed;
    x.hash = world_.log().hash();
    x.events = world_.log().events();
    x.virtual_time = std::chrono::duration_cast<std::chrono::milliseconds>(
        world_.now().time_since_epoch() - 1h);
    x.requests = clients_.size();
    for (const auto& c : clients_) {
      record_.clients.push_back(c);
      x.finished += c->sum ? 1 : 0;
      x.cut_off += c->cut_off ? 1 : 0;
      if (c->cut_off) find("failures", c->name, "was cut off at " + c->host);
      if (c->refused)
        find("failures", c->name,
             "was not taken at " + c->host + (c->failure ? ": " + c->failure->code : ""));
      if (!c->failure && !c->refused) continue;
      ++x.failed;
      ++x.failures[c->failure ? c->failure->code : "not_up"];
    }
    for (const auto& e : world_.engines())
      for (const auto& m : e->mismatches()) record_.mismatches.emplace_back(e->name(), m);
    // Nothing excuses a failure here: the record has no faults.
    for (auto* check : {check_endings, check_answers, check_failures, check_books,
                        check_assignments, check_kills, check_readiness})
      for (auto& f : check(record_)) findings_.push_back(std::move(f));
    x.moves = phases_.moves();
    x.findings = std::move(findings_);
    x.lines = world_.log().lines();
    return std::move(result_);
  }

  outage_options options_;
  seeded random_;
  std::vector<std::size_t> shapes_ = answered_shapes();
  run_record record_;
  outage_result result_;
  std::vector<finding> findings_;
  phase_watch phases_;
  std::vector<std::shared_ptr<client_record>> clients_;
  std::size_t over_ = 0;  ///< the first so many clients are
  bool loading_ = false;
  const char* out_of_service_ = nullptr;  ///< of `gateway_hosts`
  time_point back_since_{};
  bool control_away_ = false;
  std::set<std::string> touched_;   ///< machines that something was done to
  std::set<std::string> by_order_;  ///< engines
  std::map<std::string, std::uint64_t> generations_;
  std::pair<std::uint64_t, std::uint64_t> asked_before_, asked_after_;
  world world_;
};

}  // namespace

outage_result run_outage(const outage_options& options) {
  catalogue();  // answers come from an engine that has no bug
  const planting bug{options.planted};
  return outage{options}.run();
}

std::string to_text(const outage_result& r) {
  const auto& x = r.run;
  auto out = fmt::format(
      "seed {}: {} requests: {} finished, {} failed, {} cut off; {} findings; {} s of its own "
      "time, {} events, hash {:016x}\n"
      "in the outage {} of {} engines were replaced ({} by drain, {} by kill, which hit {} "
      "requests), {} streams were moved\n"
      "misrouted: {} of {} questions in the outage, {} after it\n"
      "assignment {} before and in the outage, {} after it\n",
      x.seed, x.requests, x.finished, x.failed, x.cut_off, x.findings.size(),
      x.virtual_time.count() / 1'000, x.events, x.hash, r.replaced, r.engines, r.drained, r.killed,
      r.hit, x.moves, r.misrouted, r.asked, r.misrouted_after, text(r.before), text(r.after));
  if (r.gateway_learnt != control::assignment_number{})
    out += fmt::format("a gateway was started again in it: it began with assignment {}, and went "
                       "by {} within {} ms of its first requests\n",
                       text(r.gateway_began), text(r.gateway_learnt), r.learnt_within.count());
  return out;
}

std::string replay_command(const outage_options& o) {
  auto command = fmt::format("troupe sim control-outage --seed {} --outage {} --rate {}", o.seed,
                             o.outage.count(), o.requests_per_second);
  if (o.gateway_restarts) command += " --gateway-restarts";
  if (o.planted != planted::bug::none)
    command += fmt::format(" --planted {}", to_string(o.planted));
  return command + " --verbose";
}

}  // namespace troupe::sim
