#pragma once

#include "gpu/engine/engine.hpp"
#include "gpu/transfer/backend.hpp"
#include "gpu/transfer/hand_over.hpp"
#include "gpu/transfer/hand_over_wire.hpp"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::transfer {

using transfer_token = std::array<std::byte, transfer_token_bytes>;

/// For the request's timeline.
struct transfer_stats {
  std::uint64_t bytes = 0;
  std::uint32_t pieces = 0;
  engine::position from = 0;  ///< KV of [from, to) was transferred
  engine::position to = 0;
  std::chrono::microseconds moving{0};  ///< from the first piece sent to the last one acknowledged
  std::chrono::microseconds exposed{
      0};  ///< from `finish_send` to `adopted`: what prefill could not hide
  std::string transports;
  /// While a piece was under way, as far as the sender knows: what there was to send was sent, so
  /// it is the way's speed.
  std::chrono::microseconds on_wire{0};
};

/// A prefill worker's side of a hand-over.
struct outgoing {
  job_key key;
  transfer_token token{};
  std::vector<std::byte> peer;  ///< the decode worker's `local_address()`
  proximity where = proximity::other_host;
  engine::job_id job = 0;
  offer_of_kv offer;
};
struct send_callbacks {
  std::function<void(engine::position keep)>
      on_granted;                               ///< `engine::grant_delivery(job, keep)` is due
  std::function<void(transfer_stats)> on_done;  ///< decode has adopted; the session is over
  std::function<void(error)> on_failed;         ///< the session is over
};

/// A decode worker's side.
struct incoming {
  job_key key;
  transfer_token token{};
  engine::job_id job = 0;  ///< set in the pieces
};
struct receive_callbacks {
  std::function<void(offer_of_kv)> on_open;  ///< answer with `grant` or `refuse`
  std::function<void(engine::kv_piece)>
      on_piece;                                ///< destroying its buffer gives the sender credit
  std::function<void(transfer_stats)> on_end;  ///< everything was delivered; answer with `adopted`
  std::function<void(error)> on_failed;        ///< the session is over
};

/// Runs all hand-overs of one worker over one backend. Thread-safe. Callbacks come one at a time,
/// in order, without a lock held, on the backend's progress thread or a caller's; they may call
/// back here and must not block.
class hand_over_service {
 public:
  struct options {
    std::uint64_t layout = 0;  ///< of the model's KV; a peer with another one is refused
    std::size_t piece_bytes =
        8U << 20U;  ///< of one buffer: the largest piece; the same on both sides
    std::size_t buffers = 8;
    std::chrono::milliseconds timeout{10'000};
    /// The clock of deadlines and durations; `tick` takes the same. Empty:
    /// std::chrono::steady_clock::now.
    std::function<time_point()> now{};
  };
  using make_backend = std::function<expected<std::unique_ptr<backend>>(events&)>;

  /// Errors: those of the backend and of allocating its buffers.
  static expected<std::unique_ptr<hand_over_service>> start(const options& how,
                                                            const make_backend& transport);
  /// Ends all sessions without callbacks.
  ~hand_over_service();

  /// For the directory.
  std::vector<std::byte> local_address() const;
  std::string transport_name() const;

  // -- prefill -----------------------------------------------------------------
  /// Errors: `peer_unreachable`, `duplicate_job`, `too_many_hand_overs`.
  expected<void> start_send(outgoing what, send_callbacks calls);
  /// A registered buffer for a piece of this job, or null: none is free now, or the job has its
  /// share while others send, too, or all for its peer have; `on_buffer_free` will be called. A job
  /// that gets none for the timeout fails (`no_transfer_buffer`).
  std::unique_ptr<engine::piece_buffer> acquire_piece_buffer(const job_key& key, std::size_t size);
  /// In order of positions, after `on_granted`. Ignored when the session is over.
  void send_piece(const job_key& key, engine::kv_piece piece);
  /// No more pieces follow.
  void finish_send(const job_key& key);

  // -- decode ------------------------------------------------------------------
  /// An `open` that came before this call waits for it, up to the timeout. Errors: `duplicate_job`,
  /// `too_many_hand_overs`.
  expected<void> expect(incoming what, receive_callbacks calls);
  /// [0, keep) of the prompt are here already.
  void grant(const job_key& key, engine::position keep);
  void refuse(const job_key& key, error why);
  void adopted(const job_key& key);

  // -- both --------------------------------------------------------------------
  /// Ends the job's session, whichever side; the peer is told, `on_failed` follows.
  void cancel(const job_key& key, error why);
  /// Ends all sessions so. A worker's last word: callbacks hold what they work for.
  void cancel_all(const error& why);
  /// Checks deadlines; call a few times a second while any are open, else once.
  void tick(time_point now);
  /// A worker's process has ended (`certainly_dead`) or it can't be reached: ends all sessions with
  /// it.
  void worker_gone(std::span<const std::byte> address, bool certainly_dead);
  /// Called, without a lock held, whenever a buffer comes back: to wake the engine. When this
  /// returns, an earlier call is not running any more.
  void on_buffer_free(std::function<void()> call);

  struct gauges {
    std::size_t sending = 0;
    std::size_t receiving = 0;
    std::size_t early_opens = 0;  ///< wait for their job
    std::size_t buffers_free = 0;
    std::size_t buffers = 0;
    wire_counters wire;
    std::uint64_t dropped_messages = 0;  ///< malformed, stale, or with a wrong token
  };
  gauges read_gauges() const;

 private:
  class driver;
  explicit hand_over_service(std::shared_ptr<driver> d);

  std::shared_ptr<driver> driver_;
};

/// Sessions in one worker; more are refused as `too_many_hand_overs`, which is retryable.
inline constexpr std::size_t sessions_max = 4096;
/// Opens that wait for their decode job; more are answered with a refusal.
inline constexpr std::size_t early_opens_max = 256;
/// Tokens of their prompts, in all.
inline constexpr std::size_t early_tokens_max = std::size_t{4} << 20U;

}  // namespace troupe::transfer
