#pragma once

#include "gpu/engine/job_cost.hpp"
#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::engine {

/// A job's answer as the engine produced it in one step: one choice's new tokens and what they add
/// to the text.
struct choice_delta {
  job_id job = 0;
  std::uint16_t choice = 0;
  std::uint32_t first_index = 0;  ///< index of ids[0] in the choice's answer, over all attempts
  std::vector<token_id> ids;
  std::string text;  ///< whole UTF-8 characters; nothing that may still become a stop string
  std::uint32_t emitted_bytes = 0;  ///< of the choice's text, after this delta
  std::string reasoning;
  std::vector<tool_call_delta> tool_calls;
  std::vector<token_logprob> logprobs;
  finish why = finish::none;
  std::string stop_text;
  /// With the last choice's end: what the job has cost.
  std::shared_ptr<const job_cost> cost = nullptr;
};

/// Why a job ended before it was done.
struct job_failure {
  job_id job = 0;
  error why;
  bool retryable =
      false;  ///< another worker may do better (KV exhausted, device error, pre-empted)
};

/// Memory for one piece of exported KV; the transport owns it and has it registered. Destroying it
/// gives it back.
class piece_buffer {
 public:
  virtual ~piece_buffer() = default;
  virtual std::span<std::byte> bytes() = 0;
};

/// One piece of KV on its way: positions [begin, end) of a prompt, opaque bytes in the engine's own
/// format.
struct kv_piece {
  job_id job = 0;
  position begin = 0;
  position end = 0;
  std::unique_ptr<piece_buffer> buffer;
  std::size_t size = 0;  ///< bytes used in the buffer
};

/// Prefill: compute KV of tokens [0, size - 1) and give out the part from `deliver_from` in pieces.
/// The last token is never computed here: decode runs it as its first step, so that it samples the
/// first token, and so that prefill/decode apart and together compute the very same batches.
struct prefill_spec {
  job_id id = 0;
  std::vector<token_id> tokens;
  std::uint8_t priority = 0;  ///< higher first
  bool resumed =
      false;           ///< of an answer that a client has a part of: before others of its priority
  bool alone = false;  ///< never in one pass with others
  std::vector<std::uint64_t>
      chain;  ///< byte-block chain of the prompt, reported with the cached prefix
  std::uint64_t prefix_scope = 0;  ///< only jobs of the same one find each other's prefixes
  /// Positions before this are not exported. Not known before decode has answered: until
  /// `grant_delivery` nothing is exported, computing goes on.
};

/// Decode (and, with `prefill_here`, everything): sample up to `max_tokens` for each choice.
struct generate_spec {
  job_id id = 0;
  std::vector<token_id> tokens;  ///< the prompt
  std::uint16_t choices = 1;
  std::uint32_t max_tokens = 0;  ///< per choice, sum over attempts; > 0
  sampling how;
  output_plan plan;
  std::vector<std::string> stops;  ///< the client's
  bool logprobs = false;
  std::uint8_t top_logprobs = 0;
  bool ignore_end = false;
  std::uint8_t priority = 0;
  bool alone = false;  ///< not in one pass with others before `alone_passes`
  /// Asks only whether the engine works: ahead of all others, in a place of its own, and in no
  /// counter but `probes`. One at a time.
  bool probe = false;
  std::vector<std::uint64_t> chain;
  std::uint64_t prefix_scope = 0;  ///< as of a prefill
  /// Empty, or one per choice: then it ranks before others of its priority.
  std::vector<resumed_choice> resume;
  /// true: the engine computes what its cache lacks. false: KV of [keep, size - 1) comes by
  /// `import_piece`; nothing but the last token (and resumed ids) is ever computed here, and the
  /// job fails rather than recompute in silence.
  bool prefill_here = true;
  /// A stream that moves: KV of the resumed ids comes by `import_piece`, too, so that [keep, size +
  /// ids - 1) is imported. One choice only, and not with `prefill_here`.
  bool resumed_kv = false;
};

/// What the engine tells its worker; called on the engine's thread, in the middle of a step: be
/// quick, never block.
class event_sink {
 public:
  virtual ~event_sink() = default;
  /// What is done from now on is done for these jobs: should the process crash, one of them may be
  /// why. None: it is nobody's.
  virtual void on_work(std::span<const job_id> jobs) { (void)jobs; }
  /// A forward pass over so many tokens begins: nothing more is told before it has ended.
  virtual void on_pass(std::size_t tokens) { (void)tokens; }
  /// What a job has cost since it was told last: right before it is done, failed, cancelled,
  /// leaves, or has given out all its pieces. Not called for one that cost nothing.
  virtual void on_cost(job_id job, const job_cost& cost) { (void)job, (void)cost; }
  /// The reservation of a generate job that waits for imports: positions [0, keep) are already
  /// here, token by token.
  virtual void on_import_ready(job_id job, position keep) = 0;
  /// A buffer for a piece of up to `size` bytes, or null: none is free, the engine asks again in a
  /// later step and goes on computing.
  virtual std::unique_ptr<piece_buffer> acquire_piece_buffer(job_id job, std::size_t size) = 0;
  virtual void on_piece(kv_piece piece) = 0;
  /// All pieces of a prefill job were given out. `cached`: prompt tokens that were not computed.
  virtual void on_prefill_done(job_id job, position cached, std::chrono::microseconds queued,
                               std::chrono::microseconds computed) = 0;
  /// All imports are in place and adopted.
  virtual void on_adopted(job_id job) = 0;
  /// A job that computes its prompt here (prefill, or `prefill_here`) was admitted: `cached` prompt
  /// tokens were found in the cache.
  virtual void on_started(job_id job, position cached) = 0;
  virtual void on_delta(choice_delta delta) = 0;
  /// Every choice has finished; the job holds nothing any more.
  virtual void on_done(job_id job, std::uint32_t sampled, std::chrono::microseconds decoding) = 0;
  virtual void on_failed(job_failure failure) = 0;
  /// A cancelled job holds nothing any more.
  virtual void on_cancelled(job_id job) = 0;
  /// After `leave`: no token more. `tokens` are the prompt and the answer so far, whose last
  /// `answer` ones this job's deltas (and earlier attempts) have given. From here on it is a
  /// prefill job of these tokens: `grant_delivery` is due.
  virtual void on_leaving(job_id job, std::vector<token_id> tokens, std::uint32_t answer) = 0;
  /// After `leave`: it goes on as before.
  virtual void on_stays(job_id job, error why) = 0;
  /// Byte-block hashes whose KV entered or left the prefix cache.
  virtual void on_prefixes(std::span<const std::uint64_t> added,
                           std::span<const std::uint64_t> dropped) = 0;
};

/// What one step did.
struct step_report {
  bool worked = false;          ///< false: nothing to do; wait
  std::uint32_t prefilled = 0;  ///< prompt tokens computed
  std::uint32_t decoded = 0;    ///< tokens sampled
  std::uint32_t batch = 0;      ///< tokens in the forward pass
  std::size_t exported_bytes = 0;
  std::size_t imported_bytes = 0;
  std::chrono::microseconds forward{0};
};

/// The job that has been passed over most: others got what was due to it. One that rightly waits
/// (behind a higher rank, for its turn, for room, for KV or a grant from elsewhere) is not.
struct passed_over_job {
  job_id job = 0;                      ///< 0: nobody is
  double turns = 0;                    ///< that were due to it since it last got on
  std::chrono::milliseconds still{0};  ///< since the first of them
};

/// Counters for liveness and load; each is read at any time from any thread.
struct engine_gauges {
  std::uint64_t steps = 0;
  std::uint64_t ticks = 0;    ///< progress inside a forward pass
  bool ticks_inside = false;  ///< so it is counted, not only at a pass's end
  bool stepping = false;      ///< a step is under way
  std::uint32_t at_hand = 0;  ///< tokens in the last forward pass, or in the one under way
  std::uint64_t busy_us = 0;  ///< spent in forward passes that ended
  std::uint64_t prefilled = 0;
  std::uint64_t sampled = 0;
  std::uint32_t running = 0;  ///< jobs that hold a slot
  std::uint32_t queued = 0;
  std::uint32_t further =
      0;  ///< answers of all these that are still sampled, beyond each one's first
  std::uint64_t queued_tokens = 0;  ///< prompt tokens not yet computed
  std::uint32_t kv_total = 0;       ///< tokens
  std::uint32_t kv_referenced = 0;
  std::uint32_t kv_cached = 0;  ///< unreferenced prefixes
  std::uint64_t probes = 0;     ///< that were answered
  passed_over_job passed_over;
};

/// The ledger beside the engine's own truth.
struct audit_report {
  std::uint32_t ledger_tokens = 0;
  std::uint32_t engine_cells = 0;
  std::uint32_t referenced = 0;
  std::uint32_t jobs = 0;
  std::vector<std::string> mismatches;  ///< empty: the books balance
};

/// An engine: continuous batching of prefill chunks and decode tokens under a token budget.
///
/// Lifecycle: made loaded (see the factories), stepped by one thread (the engine thread), destroyed
/// by it. `submit`, `grant_delivery`, `import_piece`, `leave`, `cancel`, `wake`, `wait` and
/// `gauges` may be called from any thread; they only queue, and act in the next step. A cancel also
/// interrupts a running forward pass when nothing else is in it that would lose work (llama: by the
/// abort callback).
class engine {
 public:
  virtual ~engine() = default;

  virtual const model_info& info() const = 0;

  /// Errors: `queue_full` at `submit_queue_max`, and for a second probe. What cannot ever fit
  /// (prompt + 1 above the KV budget) fails with `prompt_too_long`.
  virtual expected<void> submit(generate_spec spec) = 0;
  virtual expected<void> submit(prefill_spec spec) = 0;
  /// Decode has answered: export [from, size - 1).
  virtual void grant_delivery(job_id job, position from) = 0;
  /// Hands over a received piece; its buffer is destroyed once the KV is in place (that is what
  /// gives credit back to the sender). Pieces may come in any order.
  virtual void import_piece(kv_piece piece) = 0;
  /// A stream goes on elsewhere: it stops between two steps, and its KV can be fetched;
  /// `on_leaving` or `on_stays` follows, unless it ended by itself first.
  virtual void leave(job_id job) = 0;
  /// Ends a job soon: `on_cancelled` follows, unless it ended by itself first.
  virtual void cancel(job_id job) = 0;

  /// Runs one batch. Engine thread only.
  virtual step_report step(event_sink& sink) = 0;
  /// Blocks until there may be something to do, or the time has passed. Engine thread only; costs
  /// nothing while idle.
  virtual void wait(std::chrono::milliseconds at_most) = 0;
  /// Ends a `wait`. Any thread.
  virtual void wake() = 0;

  virtual engine_gauges gauges() const = 0;
  /// Engine thread only, between steps.
  virtual audit_report audit() = 0;
};

/// A job that must run alone has proved harmless after so many passes in which it sampled; from
/// then on it runs with the others. Its prompt is computed before the first.
inline constexpr std::uint32_t alone_passes = 8;

/// Jobs that wait to be taken in by `step`; above it `submit` answers `queue_full` and the worker
/// rejects the job as retryable.
inline constexpr std::size_t submit_queue_jobs_max = 1024;

}  // namespace troupe::engine
