#pragma once

#include "messages/base/expected.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::transfer {

enum class memory_kind : std::uint8_t { host, cuda };

/// Memory that a backend has made known to its device (pinned, registered). Destroying it ends
/// that.
class region {
 public:
  virtual ~region() = default;
  virtual std::span<std::byte> bytes() = 0;
  virtual memory_kind kind() const = 0;
};

enum class peer_id : std::uint64_t {};

/// How a peer is reached, which decides how its death is noticed.
enum class proximity : std::uint8_t {
  same_host,   ///< shared memory, no error handling in the transport: the node tells its engines
               ///< when it has reaped one (EngineCommand.peerEnded)
  other_host,  ///< error handling by the transport
};

/// Names one transfer of one piece between two workers.
struct piece_tag {
  std::uint64_t transfer = 0;  ///< derived by both sides from the job and its one-time token
  std::uint32_t piece = 0;
  std::uint32_t begin = 0;  ///< positions [begin, end)
  std::uint32_t end = 0;
};

/// Why and how far a send or receive ended. It comes only once nobody can touch the memory any
/// more: who keeps a buffer in its completion keeps it in quarantine.
struct outcome {
  bool ok = false;
  std::size_t bytes = 0;
  error why;  ///< when not ok: `peer_failed`, `cancelled`, `truncated`, ...
};
using completion = std::function<void(outcome)>;

/// What a backend tells its owner. All calls come from the backend's progress thread: be quick,
/// never block; calling the backend from within is allowed.
class events {
 public:
  virtual ~events() = default;
  /// A small control message (a HandOver in stream framing) from a peer.
  virtual void on_control(peer_id from, std::span<const std::byte> bytes) = 0;
  /// A piece has been announced; `receive` or `decline` it, now or later.
  virtual void on_offer(peer_id from, piece_tag tag, std::size_t size, std::uint64_t offer) = 0;
  /// The peer is gone; every transfer with it has ended, or ends now with `peer_failed`. Buffers
  /// that it might still write to are in quarantine until its end is certain.
  virtual void on_peer_lost(peer_id peer, const error& why) = 0;
};

/// Bytes as the transport itself counted them.
struct wire_counters {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t control_bytes = 0;
  std::uint64_t pieces_sent = 0;
  std::uint64_t pieces_received = 0;
  /// Rounds of its own progress thread, which comes round several times a second when there is
  /// nothing to do, too; 0: it has no thread.
  std::uint64_t rounds = 0;
  /// Connections that could not be taken or made because the host's address is on another network
  /// device than when the transport began: until a new process begins, none can.
  std::uint64_t device_changed = 0;
};

/// Moves KV between workers. Thread-safe; completions and events come from its own progress thread,
/// which sleeps when idle.
///
/// The shape is that of point-to-point sends into posted receives between two ranks that have met,
/// so that UCX, NCCL (a communicator per pair, aborted as a whole) and plain memory can all carry
/// it.
class backend {
 public:
  virtual ~backend() = default;

  virtual std::string name() const = 0;
  /// What a peer needs to reach this worker; opaque, carried in directory entries.
  virtual std::vector<std::byte> local_address() const = 0;
  virtual expected<std::unique_ptr<region>> allocate(std::size_t bytes, memory_kind kind) = 0;

  /// Idempotent per address as long as the connection stands. Returns at once: what is found out
  /// later (nobody listens there) comes as `on_peer_lost`. Both sides must agree on the proximity.
  /// Errors: `peer_unreachable`.
  virtual expected<peer_id> connect(std::span<const std::byte> address, proximity where) = 0;
  /// All connections with the worker of that address, whoever made them, and lost ones, too, as
  /// long as buffers are in quarantine for them: what to `disconnect` when its process has ended.
  virtual std::vector<peer_id> peers_at(std::span<const std::byte> address) const = 0;
  /// Ends everything with this peer and forgets it. `certainly_dead`: its process is known to be
  /// gone (the launcher reaped it), so quarantined buffers are free at once.
  virtual void disconnect(peer_id peer, bool certainly_dead) = 0;

  /// At most `control_bytes_max`. Errors: `peer_failed`, `control_backlog` above
  /// `control_backlog_messages_max`.
  virtual expected<void> send_control(peer_id to, std::span<const std::byte> bytes) = 0;
  /// Sends `bytes` of a region (kept alive by the caller until `done`). Rendezvous: completes when
  /// the receiver has them.
  virtual void send(peer_id to, piece_tag tag, std::span<const std::byte> bytes,
                    completion done) = 0;
  virtual void receive(std::uint64_t offer, std::span<std::byte> into, completion done) = 0;
  virtual void decline(std::uint64_t offer) = 0;

  virtual wire_counters counters() const = 0;
  /// The transports in use towards a peer, as the library reports them ("tcp", "posix,cma"); for
  /// tests and the timeline.
  virtual std::string transports(peer_id peer) const = 0;
};

inline constexpr std::size_t control_bytes_max = 8U << 20U;
inline constexpr std::size_t control_backlog_messages_max = 4096;

}  // namespace troupe::transfer
