#pragma once

#include "gpu/engine/types.hpp"
#include "messages/job.capnp.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::request {

/// What has been given to the client of one prompt's choices: the memory that lets another worker
/// go on, and the guard against repeated and missing tokens. Pure.
class stream_ledger {
 public:
  enum class verdict : std::uint8_t {
    fresh,      ///< continues exactly: give it to the client
    duplicate,  ///< known already: drop
    gap,        ///< tokens are missing: the attempt is broken
  };

  explicit stream_ledger(std::uint16_t choices) : choices_(choices) {}

  /// Judges a delta and, when it is fresh, remembers it.
  verdict take(msg::StreamDelta::Reader delta);

  bool all_done() const;
  std::uint32_t sampled() const;
  /// There is something to go on from.
  bool anything() const;
  /// The finish reason of the first choice, for the timeline.
  msg::FinishReason finish() const { return choices_.front().why; }

  /// Of each choice: tokens so far, and how it has ended.
  struct length {
    std::uint32_t tokens = 0;
    msg::FinishReason why = msg::FinishReason::NONE;
  };
  std::vector<length> lengths() const;

  void write(msg::Resume::Builder out) const;
  std::size_t choices() const { return choices_.size(); }

 private:
  struct choice {
    std::vector<engine::token_id> ids;
    std::uint32_t emitted_bytes = 0;
    msg::FinishReason why = msg::FinishReason::NONE;
  };
  std::vector<choice> choices_;
};

}  // namespace troupe::request
