#pragma once

#include "actors/control/shard_map.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/request/attempt_policy.hpp"
#include "actors/request/holdings.hpp"
#include "actors/request/retry_budget.hpp"
#include "actors/request/settlement.hpp"
#include "actors/request/shard_way.hpp"
#include "actors/request/timeline.hpp"
#include "actors/request/worker_board.hpp"
#include "messages/wire.hpp"

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::request {

/// A shard answers within microseconds; after so long it is taken as lost.
inline constexpr std::chrono::milliseconds route_timeout{2'000};
/// After its last token a request waits so long for what prefill has to tell for its timeline.
inline constexpr std::chrono::milliseconds last_account_wait{250};
/// Parts of a long prompt, and how many may be on their way.
inline constexpr std::size_t part_bytes = 256U << 10U;
inline constexpr std::size_t parts_ahead_max = 2;

/// The node's budget of further attempts, for all its request actors. Thread-safe.
class shared_budget {
 public:
  using time_point = retry_budget::time_point;
  std::chrono::milliseconds pace(time_point now) {
    std::lock_guard lock{mutex_};
    return budget_.pace(now);
  }
  bool try_take(time_point now) {
    std::lock_guard lock{mutex_};
    return budget_.try_take(now);
  }
  std::chrono::milliseconds debt(time_point now) {
    std::lock_guard lock{mutex_};
    return budget_.debt(now);
  }

 private:
  std::mutex mutex_;
  retry_budget budget_;
};

/// What all request actors of a node share.
struct request_context {
  std::string host;
  msg::address self;  ///< `requests/<host>`, in this incarnation
  std::shared_ptr<const control::shard_map> shards;
  std::chrono::milliseconds lease{3'000};
  std::shared_ptr<link::post_office> office;
  std::shared_ptr<job_book> jobs;
  std::shared_ptr<lease_book> leases;
  std::shared_ptr<const admission> gate;
  std::shared_ptr<timeline_store> timelines;
  std::shared_ptr<worker_board> board;
  std::shared_ptr<shared_budget> retries = std::make_shared<shared_budget>();
  std::shared_ptr<silent_shards> silent = std::make_shared<silent_shards>();
  std::shared_ptr<const directory::directory_view> view;
};

// -- from the hub, inside the process --------------------------------------------

/// One stream's part of a token batch; the batch itself is shared.
struct batch_slice {
  msg::envelope<msg::TokenBatch> batch;
  std::uint32_t index = 0;
};
/// A route and its lease, which goes back when nobody takes it: the request may have ended, with
/// this in its mailbox.
struct route_given {
  msg::envelope<msg::Route> route;
  std::shared_ptr<held_route> lease;
};
/// A worker is gone (its process ended, its host is lost, or a newer generation has taken its
/// name).
struct worker_gone {
  std::string name;
  std::uint64_t alive = 0;  ///< the incarnation that has its name now; 0: none
  std::string reason;
};
/// An engine has crashed, and this prompt was at hand.
struct crash_suspected {
  job_key key;
  std::uint32_t suspects = 0;
  std::string engine;
  std::string reason;
};
/// To the hub, once for each request: it is over, and to be settled as soon as its workers have
/// told what it has cost.
struct request_over {
  std::shared_ptr<ended_request> what;
};
/// To a request that is over: whatever came for it before the hub knew that is in its mailbox ahead
/// of this, and what comes later finds the hub's books.
struct all_passed {};
/// To the hub: what a worker has told to a request that is over, and only waits for this.
struct cost_told {
  std::string worker;
  job_key key;
  engine::job_cost cost;
};
struct cancel_request {
  request_id id;
  std::string reason;
};
/// A directory entry in this state may have jobs.
inline bool may_work(msg::EntryState s) {
  return s == msg::EntryState::READY || s == msg::EntryState::DRAINING;
}
// Times that the hub keeps for its requests (`deadline_queue`).

/// The request's time is over.
struct deadline_passed {};
/// To the hub, before a shard is asked: an answer is due within `route_timeout`.
struct route_awaited {
  msg::job_key attempt;
  std::string shard;
  std::uint64_t generation = 0;  ///< as in `chosen_shard`
};
/// The shard has not answered in time, or is lost.
struct route_late {
  msg::job_key attempt;
  bool silent = false;  ///< it is there, and says nothing
};

/// What a client is told of a prompt that crashes engines.
inline failure crashes_engines(const std::string& why) {
  return {500, "request_crashes_engine", "This request crashes the engine: " + why + ".", "", {}};
}

/// What a client is told of a prompt that engines fail at, each on its own.
inline failure not_computable(const std::string& why) {
  return {500, "request_not_computable", "This request cannot be computed: " + why + ".", "", {}};
}

/// Runs one request from routing to its end. Everything that it holds is released by its state's
/// destructor, whatever ends it. A child of the hub, monitored by it.
caf::actor spawn_request(caf::event_based_actor* hub,
                         std::shared_ptr<const request_context> context,
                         std::shared_ptr<submission> what, std::shared_ptr<ticket> place);

}  // namespace troupe::request

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::batch_slice)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::route_given)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::worker_gone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::crash_suspected)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::request_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::all_passed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::cost_told)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::cancel_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::deadline_passed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::route_awaited)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request::route_late)
