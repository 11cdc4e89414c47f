#include "apps/sim/injector.hpp"

#include <signal.h>

#include <algorithm>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

/// Its launcher acts upon a frozen engine after 4 s of silence and 10 s without a link.
constexpr auto frozen_until_fenced = 30'000ms;
constexpr std::chrono::nanoseconds thaw_interval = 250ms;
constexpr double slowness = 20;
/// Half of the engines that are drained stay so for a while after all should have gone from them.
constexpr auto drained_for = 2'500ms;
constexpr auto take_back_interval = 1'000ms;
/// A fault that was aimed comes without it after so long.
constexpr auto aim_patience = 2'000ms;

/// How the host of a worker is found in its name: `decode/d/a.0`.
std::string host_of_worker(const std::string& name) {
  const auto slash = name.rfind('/');
  const auto dot = name.rfind('.');
  return slash == std::string::npos || dot == std::string::npos
             ? std::string{}
             : name.substr(slash + 1, dot - slash - 1);
}

}  // namespace

injector::injector(world& w, phase_watch& watch,
                   std::function<std::string(const msg::request_id&)> home_of)
    : world_(w), watch_(watch), home_of_(std::move(home_of)) {}

engine_process* injector::pick_engine(std::uint64_t draw, bool serving) {
  if (serving && !aimed_engine_.empty()) {
    auto* aimed = world_.engine(aimed_engine_);
    if (aimed != nullptr && aimed->serving() && !world_.when().frozen(aimed->process()))
      return aimed;
  }
  auto all = world_.living_engines();
  std::erase_if(all, [&](const auto* e) {
    return e->serving() != serving || world_.when().frozen(e->process());
  });
  return all.empty() ? nullptr : all[draw % all.size()];
}

std::string injector::pick_host(std::uint64_t draw) const {
  std::vector<std::string> up;
  for (const auto& [host, n] : world_.nodes())
    if (n.up() && !world_.when().frozen(n.process)) up.push_back(host);
  if (std::find(up.begin(), up.end(), aimed_host_) != up.end()) return aimed_host_;
  return up.empty() ? std::string{} : up[draw % up.size()];
}

void injector::count(
    fault_kind k,
    const std::function<bool(const phase_watch::state&, const std::string& home)>& hit) {
  for (const auto& [id, s] : watch_.all())
    if (hit(s, home_of_(id))) ++hits_[static_cast<std::size_t>(k)][static_cast<std::size_t>(s.now)];
}

void injector::count_engine(fault_kind k, const std::string& engine) {
  count(k, [&](const auto& s, const auto&) { return s.prefill == engine || s.decode == engine; });
}

/// Nobody is at an engine that loads; everybody has to do without it.
void injector::count_loading(fault_kind k) {
  count(k, [](const auto&, const auto&) { return true; });
}

void injector::count_host(fault_kind k, const std::string& host) {
  count(k, [&](const auto& s, const auto& home) {
    return home == host || host_of_worker(s.prefill) == host || host_of_worker(s.decode) == host;
  });
}

void injector::later(std::chrono::nanoseconds delay, std::function<void()> what) {
  ++pending_;
  world_.when().after(delay, no_process, [this, what = std::move(what)] {
    --pending_;
    what();
  });
}

void injector::note(const planned_fault& f, std::string victim, std::vector<std::string> hosts,
                    std::chrono::milliseconds until) {
  world_.log().tell(world_.now(), "FAULT", [&] {
    return std::string{to_string(f.what)} + " " + victim +
           (until.count() > 0 ? " for " + std::to_string(until.count()) + " ms" : "");
  });
  done_.push_back(
      {f.what, world_.now(), world_.now() + until, std::move(victim), std::move(hosts)});
}

void injector::inject(const planned_fault& f) {
  if (!f.aim) return strike(f);
  armed_.push_back({f, next_armed_++});
  world_.when().after(aim_patience, no_process, [this, number = armed_.back().number] {
    const auto i = std::find_if(armed_.begin(), armed_.end(),
                                [&](const auto& a) { return a.number == number; });
    if (i == armed_.end()) return;
    const auto late = i->what;
    armed_.erase(i);
    strike(late);
  });
}

void injector::reached(const msg::request_id& id, const phase_watch::state& s) {
  const auto i = std::find_if(armed_.begin(), armed_.end(),
                              [&](const auto& a) { return a.what.aim == s.now; });
  if (i == armed_.end()) return;
  const auto f = i->what;
  armed_.erase(i);
  const bool early = s.now == phase::prefilling || s.now == phase::transferring;
  const auto engine = early && !s.prefill.empty() ? s.prefill : s.decode;
  const auto home = home_of_(id);
  // Not in the middle of a message.
  world_.when().after_this([this, f, engine, home] {
    aimed_engine_ = engine;
    aimed_host_ = f.draw % 2 == 0 || engine.empty() ? home : host_of_worker(engine);
    strike(f);
    aimed_engine_.clear();
    aimed_host_.clear();
  });
}

void injector::strike(const planned_fault& f) {
  switch (f.what) {
  case fault_kind::cut_link:
  case fault_kind::cut_one_way:
    return hit_ways(f);
  case fault_kind::kill_node:
  case fault_kind::lose_host:
  case fault_kind::freeze_node:
    return hit_node(f);
  case fault_kind::kill_hub:
    return hit_actor(f, "requests");
  case fault_kind::kill_router:
    return hit_actor(f, "router");
  case fault_kind::kill_launcher:
    return hit_actor(f, "launcher");
  case fault_kind::kill_watchdog:
    return hit_actor(f, "watchdog");
  case fault_kind::kill_link:
    return hit_actor(f, "link");
  case fault_kind::lose_kv:
    count(f.what, [](const auto& s, const auto&) { return s.now == phase::transferring; });
    note(f, "kv", {}, 0ms);
    world_.kv().fail_pieces(1 + f.draw % 3);
    return;
  default:
    return hit_engine(f);
  }
}

void injector::hit_engine(const planned_fault& f) {
  const bool loading = f.what == fault_kind::kill_loading_engine ||
                       f.what == fault_kind::stuck_loading;
  auto* e = pick_engine(f.draw, !loading);
  const bool first_of_two = e == nullptr && loading;
  // Nobody is loading: one is made to, first.
  if (first_of_two) e = pick_engine(f.draw, true);
  if (first_of_two && e != nullptr) {
    const auto name = e->name();
    e->exit({true, SIGKILL});
    note(f, name + " (first of two)", {e->host()}, 0ms);
    return later(1'500ms, [this, f, name] {
      auto* again = world_.engine(name);
      if (again == nullptr || again->serving()) return;
      count_loading(f.what);
      note(f, name, {again->host()}, 0ms);
      if (f.what == fault_kind::stuck_loading)
        again->mood().never_loads = true;
      else
        again->exit({true, SIGKILL});
    });
  }
  if (e == nullptr) return note(f, "nobody", {}, 0ms);
  if (loading)
    count_loading(f.what);
  else
    count_engine(f.what, e->name());
  note(f, e->name(), {e->host()}, f.lasts);
  switch (f.what) {
  case fault_kind::kill_engine:
  case fault_kind::kill_loading_engine:
    return e->exit({true, SIGKILL});
  case fault_kind::stuck_loading:
    e->mood().never_loads = true;
    return;
  case fault_kind::crash_in_step:
    e->mood().crash = true;
    return;
  case fault_kind::hang_in_step:
    e->mood().hang = true;
    return;
  case fault_kind::garbage:
    e->mood().garbage = true;
    return;
  case fault_kind::stop_engine:
    return e->signal(SIGTERM);
  case fault_kind::crash_loop:
    loops_[e->name()] = world_.now() + f.lasts;
    later(f.lasts, [] {});
    return e->exit({true, SIGSEGV});
  case fault_kind::slow_engine:
    e->mood().slowness = slowness;
    return later(f.lasts, [e] { e->mood().slowness = 1; });
  case fault_kind::drain_engine:
  case fault_kind::restart_engine:
    return order_drain(f, *e);
  default: {
    world_.freeze(e->process());
    e->excuse();
    const auto lasts = f.what == fault_kind::freeze_engine_long ? frozen_until_fenced : f.lasts;
    return thaw_at(world_.now() + lasts, e);
  }
  }
}

/// By its own host's drain actor, so that the order and its end can neither be lost nor overtake
/// each other; what they cause goes over the network all the same.
void injector::order_drain(const planned_fault& f, const engine_process& e) {
  drain::drain_order o;
  o.at = {drain::target::kind::engine, e.name()};
  o.within = f.lasts;
  o.move_after = f.draw % 3 == 0 ? f.lasts : f.draw % 3 == 1 ? f.lasts / 2 : 0ms;
  const bool back = f.what == fault_kind::drain_engine;
  o.then = back ? msg::DrainEnd::KEEP : msg::DrainEnd::RESTART;
  tell_drain(e.host(), o);
  later(f.lasts + (f.draw % 2 == 0 ? 0ms : drained_for), [this, back, o, host = e.host()] {
    if (!back) return;
    auto end = o;
    end.undrain = true;
    take_back(end, host);
  });
}

/// Again and again, as an operator would: a launcher that is being restarted hears nothing, but the
/// next one keeps to the order.
void injector::take_back(const drain::drain_order& order, const std::string& host) {
  const auto& n = world_.node_at(host);
  if (!n.up()) return;
  tell_drain(host, order);
  taken_back_.push_back({order.at.name, host, world_.now()});
  later(take_back_interval, [this, order, host] {
    const auto& now = world_.node_at(host);
    if (!now.up()) return;
    const auto all = now.tree->data().view()->get();
    const auto e = all->find(order.at.name);
    if (e == all->end() ||
        (e->second.state != msg::EntryState::READY && e->second.state != msg::EntryState::FAILED))
      take_back(order, host);
  });
}

void injector::tell_drain(const std::string& host, const drain::drain_order& order) {
  const auto& n = world_.node_at(host);
  if (!n.up()) return;  // the next one knows of no order
  for (const auto& d : world_.when().actors_named(n.process, "drain"))
    world_.when().within(n.process, [&] { caf::anon_send(d, order); });
}

/// Looks in between whether it was killed: then there is nothing to wait for.
void injector::thaw_at(time_point when, engine_process* e) {
  later(std::min<std::chrono::nanoseconds>(thaw_interval, when - world_.now()), [this, when, e] {
    if (!e->alive()) return;
    if (world_.now() < when) return thaw_at(when, e);
    e->excuse();
    world_.thaw(e->process());
  });
}

void injector::started(engine_process& e) {
  const auto loop = loops_.find(e.name());
  if (loop == loops_.end() || world_.now() >= loop->second) return;
  world_.when().after(world_.random().between(50ms, 600ms), no_process, [p = &e] {
    if (p->alive()) p->exit({true, SIGSEGV});
  });
}

void injector::hit_ways(const planned_fault& f) {
  const auto hosts = world_.hosts();
  const auto from = aimed_host_.empty() ? hosts[f.draw % hosts.size()] : aimed_host_;
  std::vector<std::string> others;
  for (const auto& h : hosts)
    if (h != from) others.push_back(h);
  const auto to = others[f.draw / 7 % others.size()];
  const bool both = f.what == fault_kind::cut_link;
  const auto between = [&](const std::string& x, const std::string& y) {
    return (x == from && y == to) || (x == to && y == from);
  };
  count(f.what, [&](const auto& s, const auto& home) {
    const auto p = host_of_worker(s.prefill), d = host_of_worker(s.decode);
    return between(home, p) || between(home, d) || between(p, d) ||
           (s.now == phase::routing &&
            std::any_of(world_.cluster().routers.begin(), world_.cluster().routers.end(),
                        [&](const auto& r) { return between(home, r.host); }));
  });
  note(f, from + (both ? "<>" : ">") + to, {from, to}, f.lasts);
  world_.net().cut(from, to);
  if (both) world_.net().cut(to, from);
  later(f.lasts, [this, from, to, both] {
    world_.net().heal(from, to);
    if (both) world_.net().heal(to, from);
  });
}

void injector::hit_node(const planned_fault& f) {
  const auto host = pick_host(f.draw);
  if (host.empty()) return note(f, "nobody", {}, 0ms);
  count_host(f.what, host);
  note(f, host, {host}, f.lasts);
  if (f.what == fault_kind::freeze_node) {
    const auto p = world_.node_at(host).process;
    world_.freeze(p);
    for (auto* e : world_.living_engines())
      if (e->host() == host) e->excuse();
    return later(f.lasts, [this, host, p] {
      if (!world_.when().alive(p)) return;
      for (auto* e : world_.living_engines())
        if (e->host() == host) e->excuse();
      world_.thaw(p);
    });
  }
  world_.kill_node(host, f.what == fault_kind::lose_host);
  later(f.lasts, [this, host] { world_.start_node(host); });
}

void injector::hit_actor(const planned_fault& f, const char* name) {
  std::vector<std::pair<std::string, caf::actor>> all;
  for (const auto& [host, n] : world_.nodes())
    if (n.up())
      for (auto& a : world_.when().actors_named(n.process, name)) all.emplace_back(host, a);
  if (all.empty()) return note(f, "nobody", {}, 0ms);
  const auto aimed = std::stable_partition(all.begin(), all.end(),
                                           [&](const auto& x) { return x.first == aimed_host_; });
  const auto among = aimed == all.begin() ? all.size()
                                          : static_cast<std::size_t>(aimed - all.begin());
  const auto& [host, a] = all[f.draw % among];
  if (f.what == fault_kind::kill_hub)
    count(f.what, [&, h = host](const auto&, const auto& home) { return home == h; });
  else if (f.what == fault_kind::kill_router)
    count(f.what, [](const auto&, const auto&) { return true; });  // it holds everybody's leases
  else
    count_host(f.what, host);
  note(f, host, {host}, 0ms);
  caf::anon_send_exit(a, caf::exit_reason::kill);
}

}  // namespace troupe::sim
