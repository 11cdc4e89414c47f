#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"
#include "messages/job_key.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

namespace troupe::transfer {

using msg::job_key;

/// What a prefill worker offers, or a decode worker that a stream leaves.
struct offer_of_kv {
  std::vector<engine::token_id> tokens;  ///< of the whole prompt, and of the answer so far
  std::uint32_t answer = 0;              ///< so many of the last are answer: a running stream moves
  engine::position kv_until = 0;         ///< KV of [0, kv_until) is offered
  std::uint32_t bytes_per_token = 0;
  std::uint64_t layout = 0;
  engine::output_plan plan;
};

/// msg::HandOver as a value.
struct hand_over_message {
  struct grant {
    engine::position keep = 0;
    std::uint64_t keep_digest = 0;
    std::uint32_t credit_bytes = 0;
  };
  struct refuse {
    error why;
  };
  struct credit {
    std::uint32_t bytes = 0;
  };
  struct end {
    std::uint32_t pieces = 0;
    std::uint64_t bytes = 0;
  };
  struct adopted {};
  struct queued {};
  struct abort {
    error why;
  };
  using body_type = std::variant<offer_of_kv, grant, refuse, credit, end, adopted, abort, queued>;

  job_key key;
  std::vector<std::byte> token;
  body_type body;
};

std::vector<std::byte> encode(const hand_over_message& message);
/// For bytes from a peer: sizes are checked before anything is allocated for them. Errors:
/// `message_malformed`.
expected<hand_over_message> decode_hand_over(std::span<const std::byte> bytes);

}  // namespace troupe::transfer
