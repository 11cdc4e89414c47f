#pragma once

#include "apps/sim/chaos_run.hpp"

#include "actors/control/assignment.hpp"
#include "messages/base/planted.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::sim {

struct outage_options {
  std::uint64_t seed = 1;
  std::chrono::seconds outage{600};  ///< how long the control host is away; at least 30 s
  std::uint32_t requests_per_second = 20;
  /// In the outage's middle a gateway's node is started again, as an operator would: nothing is
  /// sent to it any more, its answers end, then its process. The new one knows of no assignment.
  bool gateway_restarts = false;
  planted::bug planted = planted::bug::none;
  bool readable = false;  ///< keep a history for people
};

struct outage_result {
  run_result run;  ///< `failed`: also those that a gateway did not take
  std::size_t engines = 0;
  std::size_t replaced = 0;  ///< in the outage: another generation serves in their place
  std::size_t drained = 0;   ///< of those, by order
  std::size_t killed = 0;    ///< of those, one alone, or with its machine
  std::size_t hit = 0;       ///< requests that were at an engine when it was killed
  std::uint64_t asked =
      0;  ///< questions to the router's shards, from the outage's beginning to its end
  std::uint64_t misrouted = 0;        ///< of those
  std::uint64_t misrouted_after = 0;  ///< from then on
  /// The last assignment before the outage, and at the very end.
  control::assignment_number before, after;
  /// What the gateway that was started again went by at first, and at the outage's end.
  control::assignment_number gateway_began, gateway_learnt;
  std::chrono::milliseconds learnt_within{0};  ///< since requests came to it
};

/// A cluster of 25 hosts: one that only controls, three with a gateway and a shard of the router,
/// one with a gateway alone, and 20 machines with two engines each. Under a steady load over all
/// gateways the control host's process dies and stays away; meanwhile one engine in ten is replaced
/// (drained and started again, killed, lost with its machine). Then the control host comes back. By
/// its seed alone.
///
/// Findings are what must not be: a request that fails or is cut off, another answer than without
/// an outage, an engine more or less that was replaced, anything that is still held at the end, or
/// somebody who does not go by the control host's new assignment.
outage_result run_outage(const outage_options& options);

std::string to_text(const outage_result& r);
/// How somebody sees it once more.
std::string replay_command(const outage_options& o);

}  // namespace troupe::sim
