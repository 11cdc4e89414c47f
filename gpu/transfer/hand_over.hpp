#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

/// The hand-over of a prompt's KV from a prefill to a decode worker, as two state machines without
/// any input or output: events go in with the time, actions come out. Who carries the actions out
/// is `hand_over_service`. The protocol is messages/transfer.capnp.
///
// clang-format off
/// | phase    | sender                               | receiver                                | owner of the deadline, when it runs |
/// |----------|--------------------------------------|-----------------------------------------|-------------------------------------|
/// | reserved | has sent `open`, waits for the grant | knows the job; waits for `open`, grants | sender, since the receiver was last heard of |
/// | sending  | sends pieces as credit allows        | takes pieces                            | each side, while a piece of it is under way |
/// | received | all sent; waits for `adopted`        | all is here; its engine imports         | each side, from `end` on |
/// | adopted  | over                                 | over                                    | nobody |
/// | freed    | failed, refused, aborted, cancelled  | the same                                | nobody |
// clang-format on
///
/// A job may wait for room at decode as long as its own deadline lets it: meanwhile the receiver
/// says `queued`, and only its silence is a failure. While prefill computes its next chunk nothing
/// is under way, and no deadline runs: the job's lease bounds that.
namespace troupe::transfer {

using time_point = std::chrono::steady_clock::time_point;

enum class phase : std::uint8_t { reserved, sending, received, adopted, freed };

/// What a session wants done, in order.
enum class does : std::uint8_t {
  send_piece,    ///< sender: `piece` may go now
  send_end,      ///< sender
  send_queued,   ///< receiver
  send_grant,    ///< receiver
  send_refuse,   ///< receiver, with `why`
  send_adopted,  ///< receiver
  send_abort,    ///< either, with `why`
  take_piece,    ///< receiver: the offered piece is good
  drop_piece,    ///< receiver: decline it
  tell_open,     ///< receiver's owner: what is offered
  tell_granted,  ///< sender's owner
  tell_end,      ///< receiver's owner: no more pieces follow, all were delivered
  tell_done,     ///< sender's owner: adopted
  tell_failed,   ///< the owner, with `why`; the last action of a session
};
struct action {
  does what;
  std::uint32_t piece = 0;
  error why = {};
};
using actions = std::vector<action>;

/// What the grant's digest is made of: XXH3 of the kept tokens.
std::uint64_t digest_of(std::span<const engine::token_id> tokens);

/// So many times per timeout a receiver says that an open still waits for room.
inline constexpr int queued_per_timeout = 4;

/// In constant time. Tokens of another length than `transfer_token_bytes` never match.
bool same_token(std::span<const std::byte> a, std::span<const std::byte> b);
inline constexpr std::size_t transfer_token_bytes = 16;

/// One way of ending and one clock for both sides.
class session {
 public:
  session(time_point now, std::chrono::milliseconds timeout) : timeout_(timeout), progress_(now) {}

  phase now_in() const { return phase_; }
  bool over() const { return phase_ == phase::adopted || phase_ == phase::freed; }

  /// The peer gave up, or is gone. No answer is due.
  actions aborted(error why);
  /// This side gives up.
  actions cancel(error why);

 protected:
  /// Breaks the rules or the deadline: tells both.
  actions fail(error why) { return cancel(std::move(why)); }
  actions late(time_point now, bool waiting, const char* for_what);

  std::chrono::milliseconds timeout_;
  time_point progress_;
  phase phase_ = phase::reserved;
};

class send_session : public session {
 public:
  /// Offers KV of tokens [0, kv_until).
  send_session(time_point now, std::chrono::milliseconds timeout,
               std::vector<engine::token_id> tokens, engine::position kv_until)
      : session(now, timeout), tokens_(std::move(tokens)), kv_until_(kv_until) {}

  actions granted(time_point now, engine::position keep, std::uint64_t digest,
                  std::uint64_t credit_bytes);
  /// The receiver lives, and its job waits for room.
  void queued(time_point now) {
    if (phase_ == phase::reserved) progress_ = now;
  }
  actions refused(error why) { return aborted(std::move(why)); }
  actions credited(time_point now, std::uint64_t bytes);
  /// The owner has piece number `pieces()` ready.
  actions ready(time_point now, engine::position begin, engine::position end, std::size_t size);
  actions sent(time_point now, bool ok, error why);
  /// The owner has no more pieces.
  actions finish(time_point now);
  actions adopted(time_point now);
  actions tick(time_point now);

  engine::position keep() const { return keep_; }
  std::uint32_t pieces() const { return pieces_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct waiting_piece {
    std::uint32_t number;
    std::size_t size;
  };
  actions advance(time_point now);

  std::vector<engine::token_id> tokens_;
  engine::position kv_until_;
  engine::position keep_ = 0;
  engine::position next_ = 0;
  std::uint64_t credit_ = 0;
  std::deque<waiting_piece> waiting_;  // bounded by the sender's buffers
  std::uint32_t pieces_ = 0;
  std::uint32_t under_way_ = 0;
  std::uint64_t bytes_ = 0;
  bool finished_ = false;
};

class receive_session : public session {
 public:
  receive_session(time_point now, std::chrono::milliseconds timeout, std::uint64_t layout)
      : session(now, timeout), layout_(layout) {}

  /// What the sender offers. Refused: another KV layout, or sizes that can't be.
  actions opened(time_point now, std::size_t tokens, engine::position kv_until,
                 std::uint64_t layout);
  /// The owner has reserved room and holds [0, keep) already.
  actions grant(time_point now, engine::position keep, std::uint64_t credit_bytes);
  actions refuse(error why);
  actions offered(time_point now, engine::position begin, engine::position end, std::size_t size,
                  std::size_t size_max);
  actions arrived(time_point now, bool ok, error why);
  /// The owner has let go of a piece: so many bytes may follow.
  void credited(std::uint64_t bytes) { credit_ += bytes; }
  actions ended(time_point now, std::uint32_t pieces, std::uint64_t bytes);
  /// The owner's engine has everything in place.
  actions adopt(time_point now);
  actions tick(time_point now);

  engine::position keep() const { return keep_; }
  bool open() const { return opened_; }

 private:
  actions advance();

  std::uint64_t layout_;
  bool opened_ = false;
  bool end_seen_ = false;
  bool end_told_ = false;
  std::size_t tokens_ = 0;
  engine::position kv_until_ = 0;
  engine::position keep_ = 0;
  engine::position next_ = 0;
  std::uint64_t credit_ = 0;
  std::uint32_t pieces_ = 0;
  std::uint32_t under_way_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::transfer
