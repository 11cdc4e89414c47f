#pragma once

#include "apps/bench/http_target.hpp"
#include "apps/bench/plan.hpp"
#include "apps/bench/recorder.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::bench {

/// Connections of an open loop; a request that finds all of them busy waits, and its latency grows.
inline constexpr std::uint32_t connections_max_default = 4'096;
/// How often each of several targets is asked whether it is ready.
inline constexpr std::chrono::milliseconds readyz_interval{200};
/// Requests that wait for a connection; one more counts as the error `backlog_full`.
inline constexpr std::size_t backlog_requests_max = 100'000;

struct load_options {
  /// Of several, requests go round those whose `/readyz` says yes, as behind a load balancer; one
  /// that was sent is never sent to another.
  std::vector<http_target> targets;
  std::string path;               ///< below a target's base path
  std::uint32_t closed_loop = 0;  ///< connections that each send when their last answer has ended;
                                  ///< 0: open loop, by the plan's times
  std::uint32_t connections_max = connections_max_default;
  std::chrono::milliseconds request_timeout{600'000};  ///< from the intended time on
  std::chrono::milliseconds drain_timeout{
      60'000};  ///< for answers that are due after the last request was sent
  nanoseconds duration = nanoseconds::max();  ///< of sending, in a closed loop
};

/// What a run calls; all on its own thread.
struct load_hooks {
  std::function<std::string(const planned_request&)> body;
  /// Sent as X-Request-Id; null: the server gives one.
  std::function<std::string(const planned_request&)> request_id;
  std::function<void()> measuring = [] {
  };  ///< the first request after the warm-up is about to be sent
  std::function<void(std::uint64_t sent, std::uint64_t open)> progress =
      [](std::uint64_t, std::uint64_t) {};                               ///< once a second
  std::function<void(const planned_request&, const outcome&)> answered;  ///< null: nobody asks
};

struct load_summary {
  std::uint64_t sent = 0;         ///< with those of the warm-up
  std::uint64_t connections = 0;  ///< opened
  std::uint64_t resent = 0;       ///< on a new connection, since the server had closed an idle one
  bool interrupted = false;       ///< by SIGINT or SIGTERM; open requests then leave no trace
  nanoseconds sending{0};         ///< from the start to the last request
};

/// Sends all requests of the plan and records what comes of them. Blocks; one thread
/// does everything. Errors: `connect_failed` when the server's name has no address.
expected<load_summary> run_load(const load_options& options, plan& requests, recorder& records,
                                const load_hooks& hooks);

}  // namespace troupe::bench
