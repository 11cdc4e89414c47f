#pragma once

#include "apps/sim/phases.hpp"
#include "apps/sim/seeded.hpp"

#include "messages/base/expected.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::sim {

enum class fault_kind : std::uint8_t {
  kill_engine,          ///< SIGKILL
  kill_loading_engine,  ///< SIGKILL while it loads
  stuck_loading,        ///< the next start of an engine never ends loading
  crash_in_step,        ///< the process ends in a forward pass
  freeze_engine_short,  ///< SIGSTOP, SIGCONT before anybody has acted
  freeze_engine_long,   ///< SIGSTOP; the launcher kills it
  thaw_fenced_engine,   ///< SIGSTOP, SIGCONT when its jobs have long gone on elsewhere
  hang_in_step,         ///< a forward pass that never ends
  slow_engine,          ///< twenty times slower, for a while
  garbage,              ///< a forward pass whose logits are no numbers
  lose_kv,              ///< pieces of KV fail in transit
  cut_link,             ///< two hosts, both ways, and back
  cut_one_way,
  kill_node,    ///< with its engines; started again
  lose_host,    ///< the same, and what it had sent is lost
  freeze_node,  ///< SIGSTOP and SIGCONT of the node's own process
  kill_hub,     ///< an actor alone, as by an exception
  kill_router,
  kill_launcher,
  kill_watchdog,
  kill_link,
  stop_engine,  ///< SIGTERM, which nobody ordered
  crash_loop,   ///< each start of one engine ends soon, for a while
  // Not faults, but what must cost a client as little:
  drain_engine,    ///< an operator takes an engine out of service, and back
  restart_engine,  ///< an operator has it drained and started again
};
inline constexpr std::size_t fault_kinds = 25;
std::string_view to_string(fault_kind k);

/// Whether a request in that phase can be hit by such a fault at all: before it has a route no
/// engine has anything of it, and pieces of KV are lost only while they are on their way.
bool can_hit(fault_kind k, phase p);

/// One fault of a run. Who it hits is drawn when it is due: by then somebody else may be there.
struct planned_fault {
  fault_kind what = fault_kind::kill_engine;
  std::chrono::nanoseconds at{0};
  std::chrono::milliseconds lasts{0};  ///< until it is taken back
  std::uint64_t draw = 0;              ///< who it hits
  /// It waits for a request to come into this phase, and hits whom that one is at.
  std::optional<phase> aim;
};

/// `count` faults within `during`, in order of time, of these kinds; empty: of all. Pure.
std::vector<planned_fault> plan_faults(seeded random, std::size_t count,
                                       std::chrono::milliseconds during,
                                       const std::vector<fault_kind>& only = {});

/// Kinds by their names, which commas part. Errors: `unknown_fault`, which names it and all that
/// there are.
expected<std::vector<fault_kind>> parse_faults(std::string_view names);
std::string join(const std::vector<fault_kind>& kinds);

}  // namespace troupe::sim
