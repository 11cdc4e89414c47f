#pragma once

// Inside of the worker actor.

#include "actors/workers/job.hpp"
#include "actors/workers/prepare.hpp"
#include "actors/workers/worker_actor.hpp"
#include "messages/wire.hpp"

#include <caf/event_based_actor.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::workers {

// -- from the hand-over's thread ---------------------------------------------------

struct hand_over_opened {
  engine::job_id job = 0;
  std::shared_ptr<transfer::offer_of_kv> offer;
};
/// The receiver has everything.
struct hand_over_complete {
  engine::job_id job = 0;
};
/// The sender's session is over, and well.
struct hand_over_done {
  engine::job_id job = 0;
  transfer::transfer_stats stats;
};
struct hand_over_failed {
  engine::job_id job = 0;
  error why;
};

/// What the worker actor knows and does. Sources by meaning: worker_jobs.cpp (a job from its
/// arrival to its end), worker_reports.cpp (what others are told),
/// worker_moves.cpp (a stream that goes on elsewhere).
///
/// A job is known by its key until it is answered (`ended`); it stays among `jobs` until tokeniser,
/// engine and hand-over have all let go, so that "no jobs" means that nothing is held.
struct worker_state {
  caf::event_based_actor* self;
  worker_options options;
  std::map<engine::job_id, job> jobs;
  std::map<transfer::job_key, engine::job_id> open;  ///< jobs that have not ended
  std::map<std::string, std::pair<std::uint64_t, std::vector<std::byte>>>
      peers;  ///< generation and address, as last heard
  engine::job_id next_job = 1;
  std::size_t assembling_bytes = 0;
  bool draining = false;  ///< takes no new jobs
  bool stopping = false;
  time_point held_until;          ///< while draining: what runs then ends
  time_point move_at;             ///< and what runs then is moved
  std::uint64_t holds = 0;        ///< a timer of an earlier one is void
  std::uint64_t hold_number = 0;  ///< of the order in force; 0: none
  bool told_stopped = false;
  std::uint64_t watches = 0;  ///< a timer of an earlier one is void
  bool watches_closely = false;
  bool idle_told = false;
  bool idle_check_due = false;
  std::unordered_set<std::uint64_t> blocks;  ///< prefixes here, for a shard that asks again
  std::map<std::string, std::uint64_t> next_prefix_event;  ///< by shard: each counts for itself
  float bytes_per_token = 0;
  health::tokeniser_watch tokenisers;
  std::uint64_t faults = 0;          ///< jobs that the engine itself failed
  std::uint64_t stalls = 0;          ///< jobs that the engine forgot
  std::uint64_t last_prefilled = 0;  ///< at the last regular report, for rates
  std::uint64_t last_sampled = 0;
  float prefill_rate = 0;
  float decode_rate = 0;
  static constexpr const char* name = "worker";

  explicit worker_state(caf::event_based_actor* s) : self(s) {}
  ~worker_state();

  time_point now() const;
  msg::address me() const { return {options.self.name, options.self.generation}; }
  template <class Schema>
  void send(const std::string& to, msg::draft<Schema>&& d) {
    if (auto e = std::move(d).freeze())
      options.office->send({to, 0}, me(), *std::move(e));
    else
      told_too_much(to, e.error());
  }
  void told_too_much(const std::string& to, const error& why) const;

  // worker_jobs.cpp: in
  void about(transfer::job_key key, const std::string& reply_to,
             const std::function<void()>& handler);
  void about(msg::Job::Reader job, const std::function<void()>& handler);
  void about(engine::job_id id, const std::function<void()>& handler);
  void take_prefill(msg::PrefillJob::Reader in);
  void take_decode(msg::DecodeJob::Reader in);
  job* take(msg::Job::Reader in, job_kind kind);
  void take_part(msg::PromptPart::Reader in);
  void content_is_here(job& j);
  void note_peer(msg::WorkerRef::Reader peer);
  preparation preparation_of(job& j);
  void offload(job& j, preparation p);
  void submitted(const prepared& x);
  void hand_over(job& j, transfer::offer_of_kv offer);
  void expect_kv(job& j);
  void opened(const hand_over_opened& x);
  job* find(const transfer::job_key& key);
  job* find(engine::job_id id);

  // worker_moves.cpp
  bool can_leave(const job& j) const;
  bool is_leaving_as(const transfer::job_key& next) const;
  void offer_moves();
  void move(const link::origin& from, msg::MoveJob::Reader in);
  void departed(engine_events::departure& x);
  void stays(const engine_events::stay& x);
  void refuse_move(const std::string& to, const transfer::job_key& key, const error& why);

  // worker_jobs.cpp: out
  void complete(const hand_over_complete& x);
  void delivered(const hand_over_done& x);
  void transfer_failed(const hand_over_failed& x);
  void happened(engine_events& x);
  void adopt_if_complete(job& j);
  void tell_prefilled_if_complete(job& j);
  void tell_done(job& j);
  void cancel(msg::CancelJobs::Reader in);
  void renew(const link::origin& from, msg::RenewLeases::Reader in);
  void tell_lost(const std::string& requester, const transfer::job_key& key);
  void watch();
  void watch_soon();
  void watch_after(std::chrono::milliseconds pause);
  void look_for_stall();
  void look_at_tokenisers();
  void reject(const transfer::job_key& key, const std::string& reply_to, const refusal& why);
  void reject(job& j, const refusal& why);
  /// `suspects`: of a fault of the engine itself, the jobs that it failed together.
  void fail(job& j, const error& why, int status, bool retryable, std::uint32_t suspects = 0);
  void end(job& j, const error& why);
  void end_well(job& j);
  void reap(job& j);

  // worker_reports.cpp
  bool idle() const;
  std::uint64_t tokens_being_prepared() const;
  void report();
  void report_regularly();
  void check_idle_soon();
  void check_idle();
  void note_prefixes(const std::vector<std::uint64_t>& added,
                     const std::vector<std::uint64_t>& dropped);
  void tell_all_prefixes(const std::string& shard);
  void tell_prefixes(const std::string& shard, const std::vector<std::uint64_t>& added,
                     const std::vector<std::uint64_t>& dropped, bool reset);
  void announce();
  void peer_ended(msg::PeerEnded::Reader peer);
  void command(const std::string& from, msg::EngineCommand::Reader in);
  void audit(const std::string& reply_to);
  void hold(msg::Hold::Reader in);
  void hold_over(std::uint64_t number);
  void release();
  void end_all(const std::string& code, const std::string& message);
  void stop_now();
  void stopped();
};

// -- the worker's timers ---------------------------------------------------------------

using watch_atom = caf::atom_constant<caf::atom("wkwatch")>;
using report_atom = caf::atom_constant<caf::atom("wkreport")>;
using idle_atom = caf::atom_constant<caf::atom("wkidle")>;
using drained_atom = caf::atom_constant<caf::atom("wkdrained")>;
using stopped_atom = caf::atom_constant<caf::atom("wkstopped")>;

}  // namespace troupe::workers

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::hand_over_opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::hand_over_complete)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::hand_over_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::hand_over_failed)
