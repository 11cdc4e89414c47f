#pragma once

#include "actors/control/assignment.hpp"
#include "apps/sim/client.hpp"
#include "apps/sim/injector.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim {

/// Something that must not be.
struct finding {
  std::string checker;
  std::string subject;  ///< the request, engine or host that it is about
  std::string text;
};

/// What a worker and all under it hold, by their own word and by the engine's.
struct worker_books {
  std::string engine;
  std::size_t routes = 0;  ///< jobs that its host knows
  std::uint32_t jobs = 0;  ///< in the engine
  std::uint32_t referenced = 0;
  std::vector<std::string> mismatches;  ///< the ledger against the runner
  std::size_t hand_overs = 0;
  std::size_t buffers = 0, buffers_free = 0;
};

/// What a node holds for its clients.
struct node_books {
  std::string host;
  std::uint32_t open_requests = 0;
  std::uint64_t prompt_bytes = 0;
  std::size_t jobs = 0;
};

/// What a shard of the router has leased, by which assignment it goes, and what it has decided
/// since its incarnation began.
struct shard_books {
  std::string host;
  std::size_t leases = 0;
  control::assignment_number goes_by;
  std::uint64_t requests = 0;
  std::uint64_t misrouted = 0;  ///< of those, for keys of others
};

/// By which assignment of keys to shards a node's hub goes.
struct node_assignment {
  std::string host;
  control::assignment_number number;
};

struct engine_start {
  std::string engine;
  std::uint64_t launcher = 0;  ///< each incarnation of a launcher counts by itself
  time_point at{};
  bool over_request = false;  ///< the life before it crashed while it worked at somebody's job
};

/// A launcher killed its engine.
struct engine_kill {
  std::string engine;
  time_point at{};
  bool excused = false;  ///< it hung, was frozen, never loaded, or its node stood still
};

/// A node's process ended by itself: its root supervisor had restarted all that it may.
struct node_giving_up {
  std::string host;
  time_point at{};
};

/// Why an attempt at a request ended early, in its own account.
struct attempt_error {
  std::size_t client = 0;  ///< index among the clients
  std::string code;
  std::string text;
};

/// All that there is to judge about a run when it has come to rest.
struct run_record {
  std::vector<std::shared_ptr<const client_record>> clients;
  std::vector<attempt_error> attempts;
  std::vector<done_fault> faults;
  std::vector<worker_books> workers;
  /// What audits between two steps found while it ran: engine, and what did not balance.
  std::vector<std::pair<std::string, std::string>> mismatches;
  std::vector<node_books> nodes;
  std::vector<shard_books> shards;
  std::vector<node_assignment> go_by;
  control::assignment_number persisted;   ///< the control host's last
  std::vector<std::string> router_hosts;  ///< where shards are meant to be
  std::vector<engine_start> starts;
  std::vector<engine_kill> kills;
  std::vector<node_giving_up> gave_up;
  std::vector<drain_taken_back> taken_back;
  std::uint32_t restart_intensity = 0;
  std::chrono::milliseconds restart_period{0};
  /// Times at which some node had no ready way to serve the model, as it saw it.
  struct gap {
    std::string host;
    time_point from{}, until{};
  };
  std::vector<gap> no_capacity;
  std::vector<std::string> not_ready;    ///< at the end, and not failed
  std::chrono::milliseconds silence{0};  ///< until a lost peer is noticed
  bool forgetful = false;                ///< engines forget jobs, by a bug that is planted
};

// Each is pure and says what it found.

/// Every request has ended once, in time, and nothing was said out of turn.
std::vector<finding> check_endings(const run_record& r);
/// What clients got is what an unfailed run gives, or the beginning of it.
std::vector<finding> check_answers(const run_record& r);
/// What failed had a cause that nobody could mend.
std::vector<finding> check_failures(const run_record& r);
/// Attempts ended early only for what faults explain.
std::vector<finding> check_attempts(const run_record& r);
/// Nothing is held any more.
std::vector<finding> check_books(const run_record& r);
/// All go by what the control host's disk has: nothing else was ever told, and nobody missed it.
std::vector<finding> check_assignments(const run_record& r);
/// No engine that made progress was killed.
std::vector<finding> check_kills(const run_record& r);
std::vector<finding> check_restarts(const run_record& r);
/// All that was not given up serves again.
std::vector<finding> check_readiness(const run_record& r);

std::vector<finding> check_all(const run_record& r);

}  // namespace troupe::sim
