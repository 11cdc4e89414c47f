#pragma once

#include "apps/sim/faults.hpp"
#include "apps/sim/phases.hpp"
#include "apps/sim/world.hpp"

#include "actors/drain/drain_actor.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim {

/// How many requests were hit by which fault in which phase.
using coverage = std::array<std::array<std::uint64_t, phases>, fault_kinds>;

/// A fault as it came about.
struct done_fault {
  fault_kind what = fault_kind::kill_engine;
  time_point from{};
  time_point until{};              ///< taken back, or in force for so long
  std::string victim;              ///< engine, host, or "a>b"; empty: there was nobody
  std::vector<std::string> hosts;  ///< that had to do with it
};

/// An operator has taken an engine's drain back.
struct drain_taken_back {
  std::string engine;
  std::string host;
  time_point at{};
};

/// Does to the world what was planned.
class injector {
 public:
  /// `home_of`: the host whose gateway a request came by; empty: it is over.
  injector(world& w, phase_watch& watch,
           std::function<std::string(const msg::request_id&)> home_of);

  void inject(const planned_fault& f);
  /// A request has come into a phase: what was aimed at that is done.
  void reached(const msg::request_id& id, const phase_watch::state& s);
  /// Every start of an engine is told to this.
  void started(engine_process& e);
  const std::vector<done_fault>& done() const { return done_; }
  /// When somebody was told to take a drain back, which starts an engine that does not run.
  const std::vector<drain_taken_back>& taken_back() const { return taken_back_; }
  const coverage& hits() const { return hits_; }
  /// Nothing is frozen, cut or down any more because of a fault.
  bool all_taken_back() const { return pending_ == 0 && armed_.empty(); }

 private:
  struct armed_fault {
    planned_fault what;
    std::uint64_t number = 0;
  };
  void strike(const planned_fault& f);
  engine_process* pick_engine(std::uint64_t draw, bool serving);
  std::string pick_host(std::uint64_t draw) const;
  void count(fault_kind k,
             const std::function<bool(const phase_watch::state&, const std::string& home)>& hit);
  void count_engine(fault_kind k, const std::string& engine);
  void count_loading(fault_kind k);
  void count_host(fault_kind k, const std::string& host);
  void thaw_at(time_point when, engine_process* e);
  void later(std::chrono::nanoseconds delay, std::function<void()> what);
  void note(const planned_fault& f, std::string victim, std::vector<std::string> hosts,
            std::chrono::milliseconds until);
  void hit_engine(const planned_fault& f);
  void order_drain(const planned_fault& f, const engine_process& e);
  void take_back(const drain::drain_order& order, const std::string& host);
  void tell_drain(const std::string& host, const drain::drain_order& order);
  void hit_ways(const planned_fault& f);
  void hit_node(const planned_fault& f);
  void hit_actor(const planned_fault& f, const char* name);

  world& world_;
  phase_watch& watch_;
  std::function<std::string(const msg::request_id&)> home_of_;
  std::vector<done_fault> done_;
  std::vector<drain_taken_back> taken_back_;
  coverage hits_{};
  std::vector<armed_fault> armed_;
  std::uint64_t next_armed_ = 1;
  std::string aimed_engine_;  ///< of the request that is aimed at; empty: whoever the draw says
  std::string aimed_host_;
  std::map<std::string, time_point> loops_;  ///< engines that end soon after each start, until
  std::size_t pending_ = 0;
};

}  // namespace troupe::sim
