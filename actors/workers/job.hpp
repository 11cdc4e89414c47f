#pragma once

#include "gpu/engine/engine.hpp"
#include "gpu/text/text_model.hpp"
#include "gpu/transfer/hand_over_service.hpp"
#include "messages/completion.capnp.h"
#include "messages/job.capnp.h"

#include <kj/array.h>

#include <capnp/common.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::workers {

using time_point = std::chrono::steady_clock::time_point;

/// A request's flat `msg::Completion` as it arrives, at once or in parts. Sizes are checked before
/// anything is allocated.
class content_assembly {
 public:
  /// Errors: `content_malformed`.
  static expected<content_assembly> begin(msg::Content::Reader content, std::size_t bytes_max);
  /// In order only. Errors: `content_malformed` (a gap, more than announced).
  expected<void> add(std::uint32_t offset, kj::ArrayPtr<const kj::byte> bytes);

  bool complete() const { return received_ == words_.size() * sizeof(capnp::word); }
  std::uint32_t received() const { return static_cast<std::uint32_t>(received_); }
  std::size_t bytes() const { return words_.size() * sizeof(capnp::word); }
  kj::Array<capnp::word> take() { return std::move(words_); }

 private:
  kj::Array<capnp::word> words_;
  std::size_t received_ = 0;
};

/// How a job is done here.
enum class job_kind : std::uint8_t {
  prefill,  ///< compute the prompt's KV and hand it over
  receive,  ///< take the KV from a prefill worker, then decode
  whole,    ///< everything here
};

/// A job at this worker. It lives until everybody who has a part of it has let go: a tokeniser
/// thread, the engine, the hand-over.
struct job {
  engine::job_id id = 0;
  transfer::job_key key;
  job_kind kind = job_kind::whole;
  std::string reply_to;
  time_point lease_until;
  std::chrono::milliseconds lease{0};
  time_point deadline;
  content_assembly content;
  std::size_t content_bytes = 0;  ///< of the whole, once it is being prepared
  time_point part_came;           ///< the last part of it
  std::vector<std::uint64_t> chain;
  std::uint64_t prefix_scope = 0;
  std::vector<engine::resumed_choice> resume;
  std::uint8_t priority = 0;
  bool probe = false;  ///< asks only whether this worker works
  bool alone = false;  ///< under suspicion: runs in passes of its own
  transfer::transfer_token token{};
  std::vector<std::byte> peer;  ///< prefill: the decode worker's address
  bool same_host = false;

  bool offloaded = false;     ///< a tokeniser thread has it
  bool in_engine = false;     ///< the engine has it, or may have
  bool handing_over = false;  ///< a hand-over runs
  bool ended = false;         ///< answered; nobody asks for it any more
  std::shared_ptr<std::atomic<bool>> unwanted = std::make_shared<std::atomic<bool>>(
      false);  ///< `ended`, for the tokeniser thread

  // receive, whole: what a move needs
  std::shared_ptr<const engine::output_plan> plan;  ///< null until the engine has the job
  std::uint32_t max_tokens = 0;
  std::uint16_t choices = 0;
  std::optional<time_point> move_asked;  ///< its request was last asked to move it
  struct departure {
    std::uint32_t next_attempt = 0;
    transfer::transfer_token token{};
    std::vector<std::byte> peer;
    bool same_host = false;
  };
  std::optional<departure> departing;  ///< the engine was told to let it go

  // receive: whichever comes last lets the sender go
  bool adopted = false;       ///< the engine has all KV in place
  bool all_received = false;  ///< the sender has said that no more follows
  // prefill: whichever comes last completes the account
  bool computed = false;
  bool delivered = false;
  engine::position cached = 0;
  std::chrono::microseconds queue_time{0};
  std::chrono::microseconds compute_time{0};
  transfer::transfer_stats stats;

  engine::job_cost cost;   ///< so far, as the engine has told
  bool cost_told = false;  ///< its requester knows it

  bool held() const { return offloaded || in_engine || handing_over; }
};

/// Whether prompt and answer fit. Errors: `context_length_exceeded`, which names the parameter.
expected<void> check_context(msg::Completion::Reader request, std::size_t prompt_tokens,
                             engine::position context);

/// What engines and hand-overs need of a `Completion`; errors name the parameter. Pure.
///
/// `tokens`: the prompt. `context`: the model's. A `max_tokens` of 0 means as many as the context
/// holds. Errors: `context_length_exceeded`.
expected<engine::generate_spec> make_generate_spec(msg::Completion::Reader request,
                                                   std::vector<engine::token_id> tokens,
                                                   engine::output_plan plan,
                                                   engine::position context);

std::vector<engine::resumed_choice> read_resume(msg::Resume::Reader in);

}  // namespace troupe::workers
