#pragma once

#include "actors/workers/engine_host.hpp"
#include "actors/workers/job.hpp"
#include "gpu/text/text_model.hpp"

#include <kj/array.h>

#include <capnp/common.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::workers {

/// The longest prompt text that `echo` gives back: it has to fit one message.
inline constexpr std::size_t echo_bytes_max = 512U << 10U;

/// From a request's words to a job in the engine: what takes too long for an actor. Holds all that
/// it needs, so that it can run on any thread.
struct preparation {
  engine::job_id id = 0;
  transfer::job_key key;
  job_kind kind = job_kind::whole;
  std::uint8_t priority = 0;
  bool alone = false;
  bool probe = false;
  std::vector<std::uint64_t> chain;
  std::uint64_t prefix_scope = 0;
  std::vector<engine::resumed_choice> resume;
  std::shared_ptr<const kj::Array<capnp::word>> content;
  std::shared_ptr<transfer::offer_of_kv>
      offer;  ///< `receive`: prompt and plan, as prefill sent them
  std::shared_ptr<const text::text_model> text;
  std::shared_ptr<engine_host> host;
  engine::position context = 0;  ///< longest sequence that fits here
  std::shared_ptr<const std::atomic<bool>> unwanted;
};

/// Why a job did not reach the engine.
struct refusal {
  error why;
  int http_status = 400;
  bool retryable = false;
};

struct prepared {
  engine::job_id id = 0;
  std::optional<refusal> refused;  ///< empty: the engine has the job
  std::uint32_t prompt_tokens = 0;
  std::size_t content_bytes = 0;
  std::shared_ptr<transfer::offer_of_kv> offer;  ///< `prefill`: what decode is to be told
  /// Where tokens are sampled: what another worker needs to go on with the answer.
  std::shared_ptr<const engine::output_plan> plan;
  std::uint32_t max_tokens = 0;
  std::uint16_t choices = 0;
};

/// Renders, tokenises, checks the limits, and submits; tells of progress in between, where it runs
/// on a thread of an `offload_pool`. A job that is unwanted before it reaches the engine is refused
/// as `cancelled`.
prepared prepare(preparation p);

}  // namespace troupe::workers

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::workers::prepared)
