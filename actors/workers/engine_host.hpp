#pragma once

#include "actors/crash/step_board.hpp"
#include "actors/link/post_office.hpp"
#include "gpu/engine/engine.hpp"
#include "gpu/transfer/hand_over_service.hpp"

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::workers {

/// What a step brought about, for the worker actor: one message per step at most.
struct engine_events {
  struct prefilled {
    engine::job_id job = 0;
    engine::position cached = 0;
    std::chrono::microseconds queued{0};
    std::chrono::microseconds computed{0};
  };
  /// A stream has stopped here, to go on elsewhere; all its tokens were sent before.
  struct departure {
    engine::job_id job = 0;
    std::vector<engine::token_id> tokens;
    std::uint32_t answer = 0;
  };
  struct stay {
    engine::job_id job = 0;
    error why;
  };
  /// Since they were told last; they come with what they are told for, and ahead of it.
  std::vector<std::pair<engine::job_id, engine::job_cost>> costs;
  std::vector<engine::job_id> adoptions;
  std::vector<departure> departures;
  std::vector<stay> stays;
  std::vector<prefilled> prefills;
  std::vector<engine::job_id> ends;
  std::vector<engine::job_failure> failures;
  /// Not by the engine, which has been told to cancel them, and tells what they have cost as it
  /// lets go.
  std::vector<engine::job_failure> given_up;
  std::vector<engine::job_id> cancels;
  std::vector<std::uint64_t> blocks_added;
  std::vector<std::uint64_t> blocks_dropped;
  bool empty() const {
    return costs.empty() && adoptions.empty() && departures.empty() && stays.empty() &&
           prefills.empty() && ends.empty() && failures.empty() && given_up.empty() &&
           cancels.empty() && blocks_added.empty() && blocks_dropped.empty();
  }
};

/// Where a job's output goes.
struct job_route {
  transfer::job_key key;
  std::string reply_to;
};

/// What a job's requester is told as soon as the engine has taken it in.
struct acceptance {
  std::uint32_t prompt_tokens = 0;
  std::string echo_text;
};

/// Token batches of a worker leave no closer together than this. Steps of an engine that computes
/// something take longer, so that each step's tokens leave at once; of steps that end within a
/// fraction of it, a message for each would cost the nodes more than what it says.
inline constexpr std::chrono::microseconds batch_interval{1'000};

/// Owns an engine and its thread. Everything that is due per step happens on that thread without a
/// detour through an actor: one TokenBatch per destination node, pieces into the transport. The
/// rest goes to the worker actor as one message.
///
/// Thread-safe. Destroying it stops the thread after the running step, and waits for that.
class engine_host final : engine::event_sink {
 public:
  struct options {
    std::string worker;
    std::uint64_t generation = 0;
    std::shared_ptr<link::post_office> office;
    std::shared_ptr<transfer::hand_over_service> hand_over;  ///< null for role `both`
    std::shared_ptr<crash::step_board> board;     ///< told what is worked at; null: nobody is
    bool own_thread = true;                       ///< false: whoever simulates calls `step`
    std::chrono::microseconds batch_interval{0};  ///< see `workers::batch_interval`
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  };

  engine_host(std::unique_ptr<engine::engine> engine, options how);
  ~engine_host() override;
  engine_host(const engine_host&) = delete;
  engine_host& operator=(const engine_host&) = delete;

  /// Begins to step; events go to `worker`.
  void start(caf::actor worker);
  void stop();
  /// One step of the engine and what is due after it; false: there was nothing to do. Only without
  /// a thread of its own.
  bool step();

  engine::engine& engine() { return *engine_; }
  const engine::model_info& info() const { return engine_->info(); }
  const std::shared_ptr<crash::step_board>& board() const { return how_.board; }

  /// Before the job is submitted.
  void route(engine::job_id job, job_route where);
  /// Before the job is submitted: when the engine begins, its thread sends `Accepted`, ahead of the
  /// first tokens.
  void accept_when_started(engine::job_id job, acceptance what);
  void forget(engine::job_id job);
  std::size_t routes() const;
  /// Of a job's first choice: tokens sampled so far, over all attempts; 0 before the first one
  /// here.
  std::uint32_t sampled(engine::job_id job) const;

  /// What somebody wants to be told of the books, with the jobs that the worker itself holds.
  struct audit_request {
    std::string reply_to;
    std::vector<transfer::job_key> keys;
    std::size_t key_count = 0;         ///< `keys` may be fewer
    std::size_t assembling_bytes = 0;  ///< of prompts that come in parts
  };
  /// Between two steps, on the engine thread; the answer is an `Audit`.
  void request_audit(audit_request what);

 private:
  void run();
  bool may_wait() const;
  void flush();
  void send_tokens();
  void audit();
  job_route find(engine::job_id job) const;
  void take_cost(engine::job_id job, engine_events& into);

  void on_work(std::span<const engine::job_id> jobs) override;
  void on_pass(std::size_t tokens) override;
  void on_cost(engine::job_id job, const engine::job_cost& cost) override;
  void on_import_ready(engine::job_id job, engine::position keep) override;
  std::unique_ptr<engine::piece_buffer> acquire_piece_buffer(engine::job_id job,
                                                             std::size_t size) override;
  void on_piece(engine::kv_piece piece) override;
  void on_prefill_done(engine::job_id job, engine::position cached,
                       std::chrono::microseconds queued,
                       std::chrono::microseconds computed) override;
  void on_adopted(engine::job_id job) override;
  void on_started(engine::job_id job, engine::position cached) override;
  void on_delta(engine::choice_delta delta) override;
  void on_done(engine::job_id job, std::uint32_t sampled,
               std::chrono::microseconds decoding) override;
  void on_failed(engine::job_failure failure) override;
  void on_cancelled(engine::job_id job) override;
  void on_leaving(engine::job_id job, std::vector<engine::token_id> tokens,
                  std::uint32_t answer) override;
  void on_stays(engine::job_id job, error why) override;
  void on_prefixes(std::span<const std::uint64_t> added,
                   std::span<const std::uint64_t> dropped) override;

  std::unique_ptr<engine::engine> engine_;
  options how_;
  caf::actor worker_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  mutable std::mutex mutex_;
  std::unordered_map<engine::job_id, job_route> routes_;
  std::unordered_map<engine::job_id, acceptance> acceptances_;
  std::unordered_map<engine::job_id, std::uint32_t> sampled_;
  std::vector<audit_request> audits_;

  // Engine thread only.
  std::vector<transfer::job_key> at_hand_;  ///< as the board has it
  engine_events events_;
  std::vector<std::pair<job_route, engine::choice_delta>> deltas_;
  std::chrono::steady_clock::time_point last_batch_{};  ///< when tokens left
};

}  // namespace troupe::workers

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::engine_events)
