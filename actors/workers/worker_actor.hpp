#pragma once

#include "actors/directory/directory_state.hpp"
#include "actors/health/job_watch.hpp"
#include "actors/health/thread_watch.hpp"
#include "actors/workers/engine_host.hpp"
#include "gpu/text/text_model.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::workers {

/// Jobs of one worker, whatever their phase; above it they are rejected as retryable.
inline constexpr std::size_t jobs_max = 2'048;
/// Bytes of prompts that are being put together from parts.
inline constexpr std::size_t assembly_bytes_max = 256U << 20U;
/// A prompt that is being put together gets its next part within this: while a link was away one,
/// or the credit for it, may have been lost.
inline constexpr std::chrono::milliseconds assembly_silence_max{10'000};
/// A probe's content: it is prepared on the actor's own thread. A longer one is no probe.
inline constexpr std::uint32_t probe_content_bytes_max = 4'096;
/// How often leases, deadlines and transfers are looked at, with jobs and without.
inline constexpr std::chrono::milliseconds watch_interval{100};
inline constexpr std::chrono::milliseconds idle_watch_interval{1'000};
/// Until an idle report follows the last event that may have made the worker idle.
inline constexpr std::chrono::milliseconds idle_check_delay{10};
/// What cancelled jobs get to leave the engine when the worker is told to stop.
inline constexpr std::chrono::milliseconds stop_grace{500};
/// Workers whose address is remembered, to notice a newer incarnation; above it one is forgotten.
inline constexpr std::size_t peers_max = 4'096;
/// Block hashes in one PrefixEvents message.
inline constexpr std::size_t prefix_events_max = 65'536;

struct worker_options {
  directory::entry self;  ///< name, generation, role, model, ...: what is announced when ready
  std::string launcher;   ///< directory name
  std::vector<std::string> shards;  ///< of the router: all of them, and later those that ask
  std::chrono::milliseconds report_interval{1'000};
  health::stall_limits stall;  ///< what a job that its engine forgot is told by
  std::shared_ptr<link::post_office> office;
  std::shared_ptr<engine_host> host;
  std::shared_ptr<const text::text_model> text;
  std::shared_ptr<transfer::hand_over_service> hand_over;  ///< null for role `both`
  /// Runs a task on a tokeniser thread; false: too many wait. A simulation runs it at once.
  std::function<bool(std::function<void()>)> offload;
  /// How the tokeniser threads do; empty: there are none.
  std::function<health::preparing_account()> preparing;
  health::tokeniser_limits tokenisers;
  /// Called once when a stop is over: nothing is held any more.
  std::function<void()> on_stopped;
};

/// To a worker, inside the process: end everything now.
struct stop_worker {};
/// To a worker: the link to the node is new; say again how things are.
struct announce_again {};

/// The worker actor: takes jobs, renders and tokenises them off its thread, feeds the engine, runs
/// its side of hand-overs, keeps leases and deadlines, and tells the truth about its load. It never
/// blocks, and never waits for the engine.
caf::actor spawn_worker(caf::actor_system& system, worker_options options);

}  // namespace troupe::workers

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::stop_worker)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::announce_again)
