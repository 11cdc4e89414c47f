#include "apps/sim/chaos_run.hpp"

#include "actors/launcher/launcher_actor.hpp"
#include "actors/router/shard_name.hpp"
#include "apps/sim/books.hpp"
#include "apps/sim/planting.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

constexpr auto arrivals = 12'000ms;
constexpr auto start_limit = 30'000ms;
constexpr auto start_interval = 20ms;
constexpr auto end_limit = 200'000ms;
/// After the last request: leases lapse, transfers time out, faults are taken back, engines come
/// back. How often it is looked whether all is done, and for how long at most.
constexpr auto rest_interval = 1'000ms;
constexpr auto rest_limit = 60'000ms;
/// How often nodes are asked whether they could serve.
constexpr auto gap_interval = 50ms;
/// A request counts as not done for so long after its last token.
constexpr auto finishing = 250ms;
/// As systemd would.
constexpr auto node_restart = 500ms;
/// An engine that was frozen, or whose node was, may be taken for lost for so long after it.
constexpr auto excuse_lasts = 15'000ms;

config::cluster make_cluster(seeded random) {
  config::cluster c;
  c.section.id = "simulation";
  std::uint16_t port = 7'000;
  for (const auto* name : {"a", "b", "c"}) {
    config::host h;
    h.name = name;
    h.address = std::string{"10.0.0."} + std::to_string(c.hosts.size() + 1);
    h.port = port++;
    c.hosts.push_back(h);
  }
  config::model m;
  m.name = "m";
  m.context_tokens = context_tokens;
  c.models.push_back(m);
  auto pool = [&](const char* name, config::pool_role role, std::vector<std::string> hosts) {
    config::pool p;
    p.name = name;
    p.model = "m";
    p.role = role;
    p.hosts = std::move(hosts);
    p.slots = 4 + static_cast<std::uint32_t>(random.below(12));
    p.kv_tokens = 4'096 + 2'048 * static_cast<std::uint32_t>(random.below(4));
    p.step_tokens = 64 << random.below(3);
    p.cached_prefixes = 8;
    p.engine = config::engine_kind::simulated;
    c.pools.push_back(p);
  };
  const auto layout = random.below(3);
  if (layout == 0) {
    pool("p", config::pool_role::prefill, {"a", "b", "c"});
    pool("d", config::pool_role::decode, {"a", "b", "c"});
  } else if (layout == 1) {
    pool("p", config::pool_role::prefill, {"a", "b"});
    pool("d", config::pool_role::decode, {"b", "c"});
    pool("x", config::pool_role::both, {"a", "c"});
  } else {
    pool("p", config::pool_role::prefill, {"a", "b", "c"});
    pool("d", config::pool_role::decode, {"a", "b", "c"});
    pool("x", config::pool_role::both, {"b"});
  }
  for (const auto* host : {"a", "b"}) {
    config::router r;
    r.host = host;
    c.routers.push_back(r);
  }
  c.health.transfer_timeout = 4'000ms;
  c.health.load_timeout = 6'000ms;
  c.health.hang_timeout = 2'000ms;
  c.health.restart_intensity = 4 + static_cast<std::uint32_t>(random.below(4));
  c.health.restart_backoff_max = 2'000ms;
  c.transfer.kind = "host";
  c.transfer.piece_bytes_max = 8U << 10U;
  c.transfer.buffer_bytes = (3 + random.below(4)) * (8U << 10U);
  auto& control = c.control.emplace();
  control.host = c.hosts[random.below(c.hosts.size())].name;
  control.state = "control.db";
  control.interval = 2'000ms;
  return c;
}

class chaos {
 public:
  explicit chaos(const run_options& o)
      : options_(o), world_(o.seed, make_cluster(seeded{o.seed, 10}), o.readable),
        injector_(world_, phases_, [this](const msg::request_id& id) { return home_of(id); }) {
    world_.when().on_message = [this](const caf::type_erased_tuple& m) {
      phases_.sees(m);
      // What the router is about to find: a gap may be shorter than the time between two looks.
      if (m.size() == 2 && m.match_element<msg::envelope<msg::RouteRequest>>(1) && !done_)
        look_for_gaps();
    };
    phases_.on_change = [this](const msg::request_id& id, const phase_watch::state& s) {
      injector_.reached(id, s);
      if (s.now == phase::finishing)
        world_.when().after(finishing, no_process, [this, id] { phases_.ends(id); });
    };
    world_.kv().on_control = [this](std::span<const std::byte> b) { phases_.sees_control(b); };
    world_.on_engine_started = [this](engine_process& e) { started(e); };
    world_.on_engine_ended = [this](engine_process& e, launcher::exit_status how) {
      crashed_over_request_[e.name()] = launcher::is_crash(how, false) && e.at_work();
    };
    world_.on_node_down = [this](process_id p) { cut_off(p); };
    world_.on_node_lost = [this](const std::string& host, const std::string&) {
      record_.gave_up.push_back({host, world_.now()});
      world_.when().after(node_restart, no_process, [this, host] { world_.start_node(host); });
    };
  }

  run_result run() {
    set_pace();
    for (const auto& host : world_.hosts()) world_.start_node(host);
    // Now and then: to ask after every step would take as long as the steps.
    const auto start_until = world_.now() + start_limit;
    while (!not_ready(world_).empty() && world_.now() < start_until)
      world_.run(start_interval, [] { return false; });
    const bool started = not_ready(world_).empty();
    start_clients();
    for (const auto& f :
         plan_faults(seeded{options_.seed, 12}, options_.faults, arrivals, options_.only))
      world_.when().after(f.at, no_process, [this, f] { injector_.inject(f); });
    look_regularly();
    world_.run(end_limit, [this] { return all_over(); });
    come_to_rest();
    if (!started) record_.not_ready.push_back("the cluster was not ready at its start");
    return result();
  }

 private:
  std::string home_of(const msg::request_id& id) const { return clients_.at(id.low - 1)->host; }

  /// Some clusters are slow, so that leases are renewed, queues are long, and steps take a while.
  void set_pace() {
    seeded random{options_.seed, 13};
    auto& pace = world_.pace();
    if (random.chance(0.6)) return;
    const auto slower = static_cast<double>(2 + random.below(30));
    pace.prefill_tokens_per_second /= slower;
    pace.decode_step_us *= slower;
    pace.decode_us_per_stream *= slower;
  }

  // -- while it runs -------------------------------------------------------------
  void started(engine_process& e) {
    injector_.started(e);
    record_.starts.push_back({e.name(), world_.when().running(), world_.now(),
                              std::exchange(crashed_over_request_[e.name()], false)});
    e.on_killed_by_launcher = [this](engine_process& killed) {
      const bool excused = killed.hangs() || killed.mood().never_loads ||
                           world_.when().frozen(killed.process()) ||
                           (killed.last_excuse() != time_point{} &&
                            world_.now() - killed.last_excuse() < excuse_lasts);
      record_.kills.push_back({killed.name(), world_.now(), excused});
    };
  }

  void cut_off(process_id gateway) {
    for (const auto& c : clients_)
      if (c->submitted && !c->over() && c->gateway == gateway) {
        c->cut_off = true;
        phases_.ends(c->id);
        c->ended = world_.now();
      }
  }

  void start_clients() {
    const auto hosts = world_.hosts();
    const auto plan = plan_requests(seeded{options_.seed, 11}, options_.requests, hosts.size(),
                                    arrivals);
    for (const auto& p : plan) {
      auto r = std::make_shared<client_record>();
      r->number = clients_.size();
      r->id = {options_.seed, r->number + 1};
      r->name = "r" + std::to_string(r->number);
      r->plan = p;
      r->host = hosts[p.host];
      r->on_failed = [this] {
        if (!done_) look_for_gaps();
      };
      clients_.push_back(r);
      world_.when().after(p.at, no_process, [this, r] { ask(r); });
    }
  }

  /// As a load balancer would: somebody who is up.
  void ask(const std::shared_ptr<client_record>& r) {
    auto* n = &world_.node_at(r->host);
    if (!n->up() || world_.when().frozen(n->process))
      for (const auto& host : world_.hosts()) {
        auto& other = world_.node_at(host);
        if (!other.up() || world_.when().frozen(other.process)) continue;
        n = &other;
        break;
      }
    if (!n->up()) {
      r->refused = true;
      r->begun = r->ended = world_.now();
      return;
    }
    r->host = n->host;
    phases_.begins(r->id);
    world_.when().within(n->process, [&] { submit(world_, r, phases_); });
  }

  /// Asked after every step; who is over stays so.
  bool all_over() {
    while (over_ < clients_.size() && clients_[over_]->over()) ++over_;
    return over_ == clients_.size();
  }

  bool joined(const std::string& a, const std::string& b) {
    const auto& net = world_.net();
    return a == b || !(net.is_cut(a, b) || net.is_cut(b, a));
  }

  /// Whether anybody could serve a client of this host, in truth, and its node and those of the
  /// shards that may be asked know of it.
  bool capacity_from(const std::string& host) {
    const auto& home = world_.node_at(host);
    if (!home.up()) return false;
    const auto here = home.tree->data().view()->get();
    const auto& routers = world_.cluster().routers;
    const auto ready = [&](std::size_t n) {
      const auto i = here->find(router::shard_name(n));
      return i != here->end() && i->second.state == msg::EntryState::READY;
    };
    bool any_ready = false;
    for (std::size_t n = 0; n < routers.size(); ++n) any_ready = any_ready || ready(n);
    for (std::size_t n = 0; n < routers.size(); ++n) {
      if (any_ready && !ready(n)) continue;
      const auto& shard = world_.node_at(routers[n].host);
      // A silent one costs time only, and of one that refuses another is asked.
      if (!shard.up() || world_.when().frozen(shard.process) || !joined(host, shard.host)) continue;
      if (capacity_by(host, *here, shard)) return true;
    }
    return false;
  }
  bool capacity_by(const std::string& host, const directory::snapshot& here,
                   const world::node& router) {
    const auto there = router.tree->data().view()->get();
    const auto known = [](const directory::snapshot& all, const engine_process& e) {
      const auto i = all.find(e.name());
      return i != all.end() && i->second.generation == e.generation() &&
             i->second.state == msg::EntryState::READY;
    };
    std::vector<engine_process*> able;
    for (auto* e : world_.living_engines())
      if (e->able() && known(here, *e) && known(*there, *e) && joined(host, e->host()) &&
          joined(router.host, e->host()))
        able.push_back(e);
    return std::any_of(able.begin(), able.end(), [&](const auto* d) {
      if (d->role() == msg::Role::BOTH) return true;
      return d->role() == msg::Role::DECODE &&
             std::any_of(able.begin(), able.end(), [&](const auto* p) {
               return p->role() == msg::Role::PREFILL && joined(p->host(), d->host());
             });
    });
  }

  /// When nobody could serve the model: as a node sees it, which may be late, or in truth.
  void look_regularly() {
    look_for_gaps();
    if (!done_) world_.when().after(gap_interval, no_process, [this] { look_regularly(); });
  }
  void look_for_gaps() {
    for (auto& [host, n] : world_.nodes()) {
      const bool ready = n.up() && n.tree->data().front()->models().front().ready &&
                         capacity_from(host);
      auto open = gaps_.find(host);
      if (ready && open != gaps_.end()) {
        record_.no_capacity.push_back({host, open->second, world_.now()});
        gaps_.erase(open);
      } else if (!ready && open == gaps_.end()) {
        gaps_[host] = world_.now();
      }
    }
  }

  // -- at its end ------------------------------------------------------------------
  void come_to_rest() {
    const auto until = world_.now() + rest_limit;
    do {
      world_.run(rest_interval, [] { return false; });
      record_.not_ready = not_ready(world_);
      if (injector_.all_taken_back() && record_.not_ready.empty())
        read_books(world_, record_);
      else
        continue;
      if (check_books(record_).empty() && check_assignments(record_).empty()) break;
    } while (world_.now() < until);
    done_ = true;
    read_books(world_, record_);
    for (const auto& [host, from] : gaps_)
      record_.no_capacity.push_back({host, from, world_.now()});
  }

  /// From the requests' own accounts, where their hub still has them.
  void read_attempts() {
    static const std::string mark = "\"error\":\"";
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      const auto& c = *clients_[i];
      auto& n = world_.node_at(c.host);
      if (!c.submitted || !n.up()) continue;
      const auto json = n.tree->data().front()->timeline_json(c.name);
      for (auto at = json.find(mark); at != std::string::npos; at = json.find(mark, at)) {
        at += mark.size();
        const auto text = json.substr(at, json.find('"', at) - at);
        if (!text.empty()) record_.attempts.push_back({i, text.substr(0, text.find(':')), text});
      }
    }
  }

  run_result result() {
    run_result x;
    x.seed = options_.seed;
    x.hash = world_.log().hash();
    x.events = world_.log().events();
    x.virtual_time = std::chrono::duration_cast<std::chrono::milliseconds>(
        world_.now().time_since_epoch() - std::chrono::hours{1});
    x.requests = clients_.size();
    for (const auto& r : clients_) {
      record_.clients.push_back(r);
      x.finished += r->sum ? 1 : 0;
      x.left += r->left ? 1 : 0;
      x.cut_off += r->cut_off ? 1 : 0;
      if (!r->failure) continue;
      ++x.failed;
      ++x.failures[r->failure->code];
    }
    read_attempts();
    for (const auto& e : world_.engines())
      for (const auto& m : e->mismatches()) record_.mismatches.emplace_back(e->name(), m);
    for (const auto& a : record_.attempts) ++x.attempts[a.code];
    record_.faults = injector_.done();
    record_.taken_back = injector_.taken_back();
    record_.forgetful = options_.planted == planted::bug::forget_job;
    for (const auto& r : world_.cluster().routers) record_.router_hosts.push_back(r.host);
    record_.restart_intensity = world_.cluster().health.restart_intensity;
    record_.restart_period = world_.cluster().health.restart_period -
                             world_.cluster().health.restart_backoff_max;
    x.faults = static_cast<std::size_t>(
        std::count_if(record_.faults.begin(), record_.faults.end(),
                      [](const done_fault& d) { return d.victim != "nobody"; }));
    x.moves = phases_.moves();
    x.hits = injector_.hits();
    x.findings = check_all(record_);
    x.lines = world_.log().lines();
    return x;
  }

  run_options options_;
  run_record record_;
  phase_watch phases_;
  std::vector<std::shared_ptr<client_record>> clients_;
  std::size_t over_ = 0;  ///< the first so many clients are
  std::map<std::string, time_point> gaps_;
  std::map<std::string, bool> crashed_over_request_;  ///< engines: how the last life ended
  bool done_ = false;
  world world_;
  injector injector_;
};

}  // namespace

run_result run_chaos(const run_options& options) {
  catalogue();  // answers come from an engine that has no bug
  const planting bug{options.planted};
  return chaos{options}.run();
}

}  // namespace troupe::sim
