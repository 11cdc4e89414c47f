#pragma once

#include "gpu/engine/batching/command_queue.hpp"
#include "gpu/engine/batching/composition.hpp"
#include "gpu/engine/batching/job.hpp"
#include "gpu/engine/batching/step_costs.hpp"
#include "gpu/engine/make_engine.hpp"
#include "gpu/kv/kv_pool.hpp"
#include "gpu/kv/output_predictor.hpp"
#include "gpu/kv/prefix_cache.hpp"
#include "messages/base/planted.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe::engine {

/// Lets the ledger's moves happen in the runner, too: the only place where sequences change hands.
class runner_memory final : public kv::backing {
 public:
  explicit runner_memory(model_runner& runner) : runner_(runner) {}
  void copy(slot_id from, slot_id to, position begin, position end) override {
    if (planted::is(planted::bug::free_used_kv) && end > begin) --end;
    runner_.kv_copy(from, to, begin, end);
  }
  void remove(slot_id slot, position begin, position end) override {
    runner_.kv_remove(slot, begin, end);
  }

 private:
  model_runner& runner_;
};

/// The engine over any runner. One step: commands → KV in and out → admission → batch → forward →
/// sampling. Jobs are kept by rank (priority, then age) in two lists: waiting, and running (those
/// that hold KV). Sources by meaning: submission.cpp, admission.cpp, kv_room.cpp (who gives way
/// when cells are short), kv_transit.cpp (pieces in and out), forward.cpp, fairness.cpp (whether
/// each gets what is due to it), answer.cpp (from a token to a delta), reporting.cpp.
class batching_engine final : public engine {
 public:
  batching_engine(std::unique_ptr<model_runner> runner,
                  std::shared_ptr<const text::text_model> text, const batching_limits& limits,
                  engine_options options);

  const model_info& info() const override { return runner_->info(); }
  expected<void> submit(generate_spec spec) override;
  expected<void> submit(prefill_spec spec) override;
  void grant_delivery(job_id id, position from) override { queue_.push(grant_command{id, from}); }
  void import_piece(kv_piece piece) override { queue_.push(import_command{std::move(piece)}); }
  void leave(job_id id) override { queue_.push(leave_command{id}); }
  void cancel(job_id id) override { queue_.push(cancel_command{id}); }
  step_report step(event_sink& sink) override;
  void wait(std::chrono::milliseconds at_most) override;
  void wake() override { queue_.wake(); }
  engine_gauges gauges() const override;
  audit_report audit() override;

 private:
  using job_list = std::vector<std::unique_ptr<job>>;  ///< by rank, highest first

  /// A sequence that takes part in the next pass: a job's base, or one of its choices.
  struct participant {
    job* owner = nullptr;
    choice_run* choice = nullptr;  ///< null: the base
    position from = 0;
  };
  /// A pass put together, with room for its tokens.
  struct pass {
    struct part {
      participant who;
      position tokens = 0;
      bool decode = false;
    };
    std::vector<part> parts;
    std::vector<batch_token> tokens;
    std::uint32_t decoding = 0;         ///< sequences that a token was due to, or a turn
    std::uint32_t unshared = 0;         ///< tokens of the budget that nobody asked for
    const job* last_prefill = nullptr;  ///< the lowest-ranked one with a share
  };

  // submission.cpp
  expected<void> check(std::span<const token_id> prompt) const;
  expected<void> check_ids(std::span<const token_id> ids, const char* parameter) const;
  error no_ranges() const;
  expected<std::unique_ptr<job>> make_job(job_id id, std::vector<token_id> prompt,
                                          std::uint8_t priority, std::vector<std::uint64_t> chain,
                                          bool probe = false);
  expected<void> take_answer_in(job& j) const;
  void replay(const job& j, choice_run& c, const resumed_choice& earlier) const;
  void apply(submit_command& c);
  void apply(grant_command& c);
  void apply(import_command& c) { arrivals_.push_back(std::move(c.piece)); }
  void apply(leave_command& c);
  void apply(cancel_command& c);
  job* find(job_id id);
  static void insert_by_rank(job_list& list, std::unique_ptr<job> j);

  // admission.cpp
  struct prefix {
    const kv::sequence* source = nullptr;
    position length = 0;
    std::uint32_t unreferenced = 0;  ///< its cells that only the cache holds
  };
  void admit_waiting();
  bool place_for(const job& j) const;
  bool set_one_aside();
  bool preempt_below(std::uint8_t priority);
  bool try_admit(job& j);
  prefix longest_prefix(const job& j);
  std::uint32_t predicted_growth(const job& j) const;
  bool unpark(job& j);
  void start_choices(job& j);

  // kv_room.cpp
  std::uint32_t usable_cells() const { return pool_.total() - probe_cells_; }
  const job* running_probe() const;
  std::uint32_t reserved_cells() const;
  std::uint32_t promised() const;
  std::int64_t growth_room() const {
    return std::int64_t{pool_.free()} + pool_.cached() - promised() - reserved_cells();
  }
  bool evict_until_free(std::uint32_t cells, bool for_probe = false);
  std::optional<kv::sequence> open_slot(bool for_probe = false);
  std::uint32_t make_growth_room(const participant& p, std::uint32_t wanted, std::uint32_t booked);
  bool give_way(const participant& p);
  void preempt(job& j);
  bool park(job& j);
  static void release_kv(job& j);
  static const kv::sequence* prompt_source(const job& j);

  // kv_transit.cpp
  static const char* why_it_stays(const job& j);
  void become_prefill(job& j);
  void deliver_pieces();
  bool deliver_piece(job& j);
  void take_arrivals();
  void take_arrival(kv_piece piece);
  bool io_budget_allows(std::size_t bytes) const;

  // forward.cpp
  const job* whose_turn();
  pass compose();
  void run(pass& p);
  void charge(const pass& p, clock_time start, bool completed);
  void pass_done(pass& p, std::chrono::microseconds took);
  void pass_without_cells(pass& p);

  // fairness.cpp
  void note_turns(const pass& p);
  void note_idle_step();
  void note_admission(job& admitted);
  double due(const job& j, const pass& p, std::size_t alone) const;
  void miss(job& j, double turns) const;
  passed_over_job most_passed_over() const;

  // answer.cpp
  void sample(job& j, choice_run& c, std::size_t batch_index);
  void take_token(job& j, choice_run& c, token_id token, choice_delta delta);
  void finish_choice(job& j, choice_run& c, choice_delta delta, finish why);
  static void add_text(choice_run& c, choice_delta& delta, text::text_delta&& from);
  void retire_sequence(job& j, choice_run& c);
  void finish_if_done(job& j);

  // reporting.cpp
  void end(job& j);
  void tell_cost(job& j);
  void fail(job& j, error why, bool retryable);
  void sweep();
  void keep_in_cache(kv::sequence kv, std::vector<token_id> tokens, const job& of);
  void report_prefixes();
  void publish();
  std::uint32_t further_answers() const;
  std::chrono::microseconds since(clock_time start) const {
    return std::chrono::duration_cast<std::chrono::microseconds>(options_.now() - start);
  }

  // Declared in the order of dependence: jobs give their KV back to the pool, and the pool to the
  // runner.
  std::unique_ptr<model_runner> runner_;
  std::shared_ptr<const text::text_model> text_;
  batching_limits limits_;
  engine_options options_;
  position piece_tokens_max_ = 0;
  std::atomic<std::size_t> claims_{0};
  std::atomic<std::size_t> probe_claims_{0};
  runner_memory memory_;
  kv::pool pool_;
  std::uint32_t probe_cells_ = 0;  ///< of the pool's
  kv::prefix_cache cache_;
  kv::output_predictor predictor_;
  command_queue queue_;
  job_list waiting_;
  job_list running_;
  job_list aside_;  ///< computed prefill jobs without a grant whose place others needed; no order
  std::deque<kv_piece> arrivals_;
  sampler_scratch scratch_;
  step_costs costs_;
  std::chrono::nanoseconds sampling_{0};  ///< after the last pass: charged with the next one

  event_sink* sink_ = nullptr;  ///< during a step
  step_report report_;
  std::uint64_t next_age_ = 0;
  std::uint64_t passes_ = 0;
  bool last_pass_alone_ = false;      ///< the last pass was that of a job that must run alone
  std::uint64_t last_alone_age_ = 0;  ///< of that job: such jobs take turns
  bool lacks_buffers_ = false;        ///< a piece waits for a buffer: ask again soon

  struct {
    std::atomic<bool> stepping{false};
    std::atomic<std::uint64_t> steps{0}, busy_us{0}, prefilled{0}, sampled{0}, queued_tokens{0},
        probes{0};
    std::atomic<std::uint32_t> at_hand{0}, running{0}, queued{0}, further{0}, referenced{0},
        cached{0};
  } counters_;
  mutable std::mutex passed_over_mutex_;  ///< for what must be read as a whole
  passed_over_job passed_over_;
};

}  // namespace troupe::engine
