#pragma once

// Inside of the launcher actor.

#include "actors/health/watchdog_actor.hpp"
#include "actors/launcher/launcher_actor.hpp"
#include "actors/launcher/loading_progress.hpp"
#include "actors/supervision/introspection.hpp"
#include "messages/drain.capnp.h"
#include "messages/engine.capnp.h"
#include "messages/route.capnp.h"
#include "messages/suspects.capnp.h"

#include <caf/event_based_actor.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe::launcher {

/// From the child's watcher thread.
struct child_ended {
  std::uint64_t generation = 0;
  exit_status status;
};

/// What a launcher knows and does. Sources by meaning: launcher_actor.cpp (the process from its
/// start to its end), launcher_drain.cpp (taking it out of service and back, and the node's own
/// end).
struct launcher_state {
  /// Who hears how an order is carried out.
  struct asker {
    std::uint64_t id = 0;
    std::string reply_to;  ///< directory name; empty: nobody
  };
  /// An order in force: from its arrival until it is taken back, replaced, or (a restart) carried
  /// out.
  struct drain_order {
    asker by;                              ///< until it has heard the last of it
    caf::actor_clock::time_point until;    ///< then what runs ends here
    caf::actor_clock::time_point move_at;  ///< then what runs is moved
    msg::DrainEnd then = msg::DrainEnd::KEEP;
    bool drained = false;
    std::uint32_t jobs_left = 0;  ///< as last told
  };

  caf::event_based_actor* self;
  launcher_options options;
  std::unique_ptr<supervision::restart_policy> policy;
  std::unique_ptr<process> child;
  std::unique_ptr<crash::board_source> board;  ///< of the running child; null: there is none
  bool told_to_end = false;                    ///< the running child, by a signal of ours
  std::uint64_t generation = 0;                ///< of the running child, or of the last one
  std::uint64_t starts = 0;                    ///< arranged or done; an earlier arrangement is void
  loading_progress loading;                    ///< of the running child
  msg::EntryState state = msg::EntryState::STARTING;
  std::string last_failure;         ///< as the engine itself told it
  std::string slow;                 ///< evidence that the running child is; empty: it is not
  bool broken = false;              ///< the running child, by the watchdog's verdict
  bool served = false;              ///< the running child: it has computed something for somebody
  std::uint32_t useless_lives = 0;  ///< crashed over requests since the last that served
  std::uint32_t broken_lives = 0;   ///< in a row that ended so
  caf::actor stopper;               ///< who asked for the stop
  std::chrono::milliseconds stop_within{5'000};
  bool stopping = false;        ///< this launcher ends with its engine
  bool ordered_to_end = false;  ///< the running child: its end is nobody's fault, and wanted
  std::optional<drain_order> drain;
  std::uint64_t drains = 0;      ///< number of the order: a timer of an earlier one is void
  std::optional<asker> awaited;  ///< who waits until the engine serves again
  bool linked = true;            ///< false from the loss of the running child's link on
  std::uint64_t outages = 0;     ///< of the links; a timer of an earlier one is void
  directory::entry last;         ///< as announced
  static constexpr const char* name = "launcher";

  explicit launcher_state(caf::event_based_actor* s) : self(s) {}
  ~launcher_state();

  // launcher_actor.cpp
  void announce(directory::entry e);
  void announce_state(msg::EntryState s, std::string detail);
  void announce_last(msg::EntryState s);
  void start();
  void start_at(std::uint64_t number);
  void watch_loading();
  void check_loading(std::uint64_t g, std::uint64_t seen);
  void status(const link::origin& from, msg::EngineStatus::Reader in);
  void report(msg::WorkerReport::Reader r);
  static msg::envelope<msg::EngineCommand> end_of(const std::string& engine, std::uint64_t g,
                                                  const std::vector<std::uint8_t>& address);
  void tell_neighbours();
  void tell_neighbours(const msg::envelope<msg::EngineCommand>& told);
  void tell_neighbours_again(std::uint64_t ended);
  void tell_of_neighbours();
  bool name_suspects(const exit_status& status);
  supervision::ending judge_crash(bool suspected);
  void child_gone(const child_ended& x);
  void ended(supervision::ending how, const std::string& reason);
  void out_of_reach();
  void in_reach();
  void in_reach_regularly(std::uint64_t g);
  void judged(const health::engine_judged& x);
  void judged_alive(const health::judgement& is);
  void link_lost(const link::link_down& x);
  void link_back(const link::link_up& x);
  void still_unlinked(std::uint64_t g, std::uint64_t outage);
  void check_link(std::uint64_t g, std::uint64_t outage);
  void end_child(int signal);
  void check_end(std::uint64_t g);
  void terminate();
  void kill(std::uint64_t g);
  void finish();
  supervision::actor_facts facts() const;

  // launcher_drain.cpp
  /// What was ordered of an earlier incarnation. True: the engine stays stopped.
  bool take_over_order();
  void ordered(msg::DrainOrder::Reader in);
  void replaced(const error& why);
  msg::DrainPhase phase_until_it_serves() const;
  void undrain(const asker& by);
  void stop(const stop_engine& x);
  void drain_over(std::uint64_t number);
  bool may_hold_jobs() const;
  void begin_drain(drain_order order);
  void hold();
  void release();
  void progress(msg::WorkerReport::Reader r);
  void drained();
  bool ended_by_order();
  void serves();
  std::string drain_detail() const;
  void announce_draining();
  void tell(const asker& by, msg::DrainPhase phase, bool over, const error* why = nullptr);
  void command(msg::draft<msg::EngineCommand>&& d);
};

using start_atom = caf::atom_constant<caf::atom("lnchstart")>;
using loading_atom = caf::atom_constant<caf::atom("lnchload")>;
using unknown_atom = caf::atom_constant<caf::atom("lnchunkn")>;
using unlinked_atom = caf::atom_constant<caf::atom("lnchlink")>;
using drained_atom = caf::atom_constant<caf::atom("lnchdrain")>;
using kill_atom = caf::atom_constant<caf::atom("lnchkill")>;
using heeded_atom = caf::atom_constant<caf::atom("lnchheed")>;
using reach_atom = caf::atom_constant<caf::atom("lnchreach")>;

}  // namespace troupe::launcher

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::launcher::child_ended)
