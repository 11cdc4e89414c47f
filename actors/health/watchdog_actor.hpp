#pragma once

#include "actors/health/probe_policy.hpp"
#include "actors/health/progress_watch.hpp"
#include "actors/health/thread_watch.hpp"
#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::health {

struct watchdog_options {
  std::string host;
  watch_limits limits;
  probe_limits probes;
  /// Where probes go out and come back; null: none are sent.
  std::shared_ptr<link::post_office> office;
  tokeniser_limits tokenisers = {};
  transport_limits transport = {};
};

/// `watchdog/<host>`: where probes come back to.
std::string watchdog_name(const std::string& host);

/// To the watchdog, from an engine's launcher: what the engine said of itself.
struct engine_progress {
  std::string engine;
  std::uint64_t generation = 0;
  engine_account account;
};

/// To the watchdog, from an engine's launcher: nothing can come from it now, since its process has
/// ended or its link is lost. Until it is in reach again its silence says nothing.
struct engine_out_of_reach {
  std::string engine;
  std::uint64_t generation = 0;
};

/// To the watchdog, from an engine's launcher, now and then: it serves and its link stands, so that
/// accounts are due, whether or not there has been one.
struct engine_in_reach {
  std::string engine;
  std::uint64_t generation = 0;
};

/// Back to the launcher, whenever the verdict changes.
struct engine_judged {
  std::string engine;
  std::uint64_t generation = 0;
  judgement is;
};

/// To the watchdog: how are they all? Answered with `verdicts_report`.
struct describe_verdicts {};
struct verdicts_report {
  struct row {
    std::string engine;
    std::uint64_t generation = 0;
    judgement is;
    engine_account account;
    std::chrono::milliseconds since{0};  ///< the last account came so long ago
    std::uint64_t probes_sent = 0;
    std::uint64_t probes_answered = 0;
  };
  std::vector<row> engines;
};

/// Judges the engines of one node by their progress, probes those where no request gets on, and
/// tells their launchers, who act on it. Each change of a verdict is an event in the log, with its
/// evidence.
///
/// Verdicts follow from what engines say, and from their silence over a link that stands: then the
/// worker itself is stuck, though its process answers pings.
///
/// It keeps one judge per engine, of its newest incarnation only; restarted, it begins anew and
/// must see an engine stand still once more before it says so.
caf::actor spawn_watchdog(caf::actor_system& system, watchdog_options options);

const char* to_string(verdict v);

}  // namespace troupe::health

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::health::engine_progress)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::health::engine_out_of_reach)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::health::engine_in_reach)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::health::engine_judged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::health::describe_verdicts)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::health::verdicts_report)
