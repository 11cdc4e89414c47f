#pragma once

#include "messages/base/expected.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe::msg {

/// The most bytes that one message may have, header words included. BASP serialises all connections
/// in one actor, so that a large message delays every heartbeat behind it; what is larger travels
/// in parts (`PromptPart`) or over the KV transport.
inline constexpr std::size_t message_bytes_max = 1024 * 1024;

/// Segments of one message. Our own builders make one or two; more than this from a peer is
/// refused.
inline constexpr std::uint32_t message_segments_max = 64;

/// An immutable Cap'n Proto message, shared by reference count.
///
/// Copying costs a reference count, reading copies nothing; safe to read from many threads at once,
/// since each reader makes its own `SegmentArrayMessageReader` (they share no traversal limiter).
/// Never null after `freeze` or `load`; a default-constructed one is empty (size 0).
class frozen_message {
 public:
  using segment = kj::ArrayPtr<const capnp::word>;

  frozen_message() = default;

  /// Takes over what `builder` holds. Errors: `message_too_large` above `message_bytes_max`.
  static expected<frozen_message> freeze(std::unique_ptr<capnp::MallocMessageBuilder> builder);

  /// Takes over words that came from a wire, cut into segments of `segment_words` words each.
  /// Errors: `message_malformed`, `message_too_large`.
  static expected<frozen_message> adopt(kj::Array<capnp::word> words,
                                        std::span<const std::uint32_t> segment_words);

  /// Copies a message in the standard stream framing (segment table, then segments), as `to_bytes`
  /// writes it. The sizes in its table are checked before anything is allocated. Errors: as
  /// `adopt`.
  static expected<frozen_message> from_bytes(std::span<const std::byte> bytes);

  /// The standard stream framing of this message (one copy).
  kj::Array<capnp::word> to_words() const;

  bool empty() const noexcept { return !body_; }
  /// Bytes of all segments, without framing.
  std::size_t byte_size() const noexcept { return body_ ? body_->bytes : 0; }
  std::span<const segment> segments() const noexcept;

  /// Number of owners of the body; for tests that prove that nothing was copied.
  long use_count() const noexcept { return body_.use_count(); }

 private:
  struct body {
    std::unique_ptr<capnp::MallocMessageBuilder> builder;  // set for messages built here
    kj::Array<capnp::word> words;                          // set for messages from a wire
    kj::Array<segment> segments;
    std::size_t bytes = 0;
  };
  explicit frozen_message(std::shared_ptr<const body> b) : body_(std::move(b)) {}

  std::shared_ptr<const body> body_;
};

/// Checks the segment sizes that a peer announced, before any allocation. Errors:
/// `message_malformed`, `message_too_large`.
expected<std::size_t> checked_total_words(std::span<const std::uint32_t> segment_words);

}  // namespace troupe::msg
