#pragma once

#include "apps/sim/history.hpp"
#include "apps/sim/seeded.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace troupe::sim {

using process_id = std::size_t;
/// Nobody's: what the world itself does.
inline constexpr process_id no_process = 0;

/// Decides what runs next, and owns time.
///
/// Whatever can run now (an actor with a message, a task) is chosen among by a seeded draw; each
/// actor's messages keep their order. When nothing can run, time goes on to the next thing that is
/// due. Actors belong to the process in which they were spawned: a frozen process runs nothing, a
/// killed one never again.
class schedule {
 public:
  schedule(caf::actor_system& system, std::uint64_t seed, history& log);

  time_point now() const;
  caf::actor_system& system() { return system_; }
  history& log() { return log_; }

  // -- processes ---------------------------------------------------------------
  process_id add_process(std::string name);
  const std::string& name_of(process_id p) const { return processes_[p].name; }
  bool alive(process_id p) const { return processes_[p].how != condition::dead; }
  bool frozen(process_id p) const { return processes_[p].how == condition::frozen; }
  void freeze(process_id p);
  void thaw(process_id p);
  /// At once and without a last word: its actors end, its tasks are forgotten. Not from within one
  /// of its own actors: see `after_this`.
  void kill(process_id p);
  /// Called after anything of that process has run.
  void on_activity(process_id p, std::function<void()> call) {
    processes_[p].on_activity = std::move(call);
  }
  /// Actors that are spawned by `f` belong to `p`.
  template <class F>
  decltype(auto) within(process_id p, F&& f) {
    const scope s{*this, p};
    return f();
  }

  /// Its living actors of that name.
  std::vector<caf::actor> actors_named(process_id p, std::string_view name) const;
  /// Called before an actor handles a message.
  std::function<void(const caf::type_erased_tuple&)> on_message;

  // -- tasks -------------------------------------------------------------------
  /// Among what can run now.
  void soon(process_id owner, std::function<void()> task);
  void at(time_point when, process_id owner, std::function<void()> task);
  void after(std::chrono::nanoseconds delay, process_id owner, std::function<void()> task) {
    at(now() + delay, owner, std::move(task));
  }
  /// Before anything else is chosen, but not from within what runs now.
  void after_this(std::function<void()> task) { after_this_.push_back(std::move(task)); }

  /// Runs one thing; moves time when there is none at present, up to `until`. False: nothing is due
  /// before that, and it is `until` now.
  bool run_one(time_point until);
  std::uint64_t steps() const { return steps_; }
  /// The actor that runs, or has run last.
  caf::actor_id running() const { return running_; }

 private:
  enum class condition : std::uint8_t { running, frozen, dead };
  struct task {
    process_id owner;
    std::function<void()> run;
  };
  struct process {
    std::string name;
    condition how = condition::running;
    std::vector<caf::actor_addr> actors;
    std::vector<caf::resumable*> held_jobs;  ///< of a frozen one
    std::vector<task> held_tasks;
    std::function<void()> on_activity;
  };
  struct scope {
    scope(schedule& s, process_id p);
    ~scope();
    schedule& owner;
    process_id before;
  };

  void claim_new_actors();
  process_id owner_of(const caf::scheduled_actor& a) const;
  void remember(caf::scheduled_actor& a);
  void run_job(std::size_t index);
  void run_task(std::size_t index);
  void run_after_this();
  bool advance(time_point until);
  void purge(process_id p);
  std::uint64_t type_of(const caf::type_erased_tuple& content);

  caf::actor_system& system_;
  caf::scheduler::test_coordinator& scheduler_;
  seeded random_;
  history& log_;
  std::deque<process> processes_;  ///< stay where they are
  process_id current_ = no_process;
  std::vector<process_id> owners_;  ///< by actor id
  std::vector<bool> known_;         ///< by actor id: its process has its address
  std::vector<task> ready_;
  std::multimap<time_point, task> due_;
  std::deque<std::function<void()>> after_this_;
  std::map<const std::type_info*, std::uint64_t> types_;
  std::uint64_t steps_ = 0;
  caf::actor_id running_ = 0;
};

}  // namespace troupe::sim
