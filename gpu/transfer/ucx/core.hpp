#pragma once

#include "gpu/transfer/ucx/address.hpp"
#include "gpu/transfer/ucx/memory.hpp"
#include "gpu/transfer/ucx/wire.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace troupe::transfer::ucx {

class core;
struct peer;

/// Something that UCX works on. Owned by its peer; UCX knows its address, so it lives until UCX's
/// callback, whatever becomes of the peer.
struct operation {
  enum class kind : std::uint8_t { send_piece, receive_piece, send_control, receive_control };

  core* owner = nullptr;
  peer* with = nullptr;  ///< null: abandoned, nobody waits for it
  kind what = kind::send_piece;
  lane_kind via = lane_kind::local;
  piece_header piece;
  control_header control;
  std::vector<std::byte> control_bytes;
  std::size_t size = 0;
  completion done;
  std::shared_ptr<registered_memory> memory;
  std::shared_ptr<std::atomic<std::size_t>> waiting;
  void* release_after = nullptr;  ///< the descriptor of a declined piece: UCX acknowledges it then,
                                  ///< which must not overtake our `decline`
  bool declined = false;

  ~operation() {
    if (waiting) --*waiting;
  }
};

/// One connection. Progress thread only.
struct peer {
  core* owner = nullptr;
  peer_id id{};
  std::uint64_t connection = 0;
  std::uint64_t instance = 0;
  lane* via = nullptr;
  ucp_ep_h endpoint = nullptr;
  bool known = false;    ///< the owner may have heard of it
  bool ready = false;    ///< greeted: anything may be sent
  bool failed = false;   ///< UCX has ended it
  bool lost = false;     ///< reported; no new operation begins
  bool closing = false;  ///< UCX is closing the endpoint
  std::deque<std::unique_ptr<operation>> control_queue;
  bool control_busy =
      false;  ///< one at a time, which keeps their order whatever protocol UCX picks for each
  std::vector<std::function<void()>> early_sends;  ///< pieces posted before it was ready
  std::unordered_map<operation*, std::unique_ptr<operation>> operations;
  std::vector<std::unique_ptr<operation>> parked;  ///< receives that failed; see `core::park`
  std::size_t offers = 0;
  std::uint64_t next_number = 1;
};

inline constexpr std::size_t offers_per_peer_max =
    1024;  ///< announced pieces that nobody has taken; more are declined
inline constexpr std::size_t peers_max = 4096;  ///< connections; more are refused
/// Longer than UCX takes from an endpoint's close to its sockets' close, which is a few rounds of
/// progress.
inline constexpr std::chrono::milliseconds settle_ms{20};
inline constexpr std::size_t eager_control_bytes_max = 32U << 10U;

/// What the public face shares with the progress thread: names of peers and counters.
struct shared_state {
  struct entry {
    entry(std::uint64_t i, lane_kind k, bool o) : instance(i), kind(k), outgoing(o) {}
    std::uint64_t instance;
    lane_kind kind;
    bool outgoing;
    bool lost = false;  ///< nothing new goes there; UCX may still hold buffers for it
    std::shared_ptr<std::atomic<std::size_t>> backlog = std::make_shared<std::atomic<std::size_t>>(
        0);
  };
  std::mutex mutex;
  std::uint64_t next_peer = 1;
  std::unordered_map<std::uint64_t, entry> peers;  ///< by peer_id, until nothing is left of it

  std::atomic<std::uint64_t> sent_bytes{0};
  std::atomic<std::uint64_t> received_bytes{0};
  std::atomic<std::uint64_t> control_bytes{0};
  std::atomic<std::uint64_t> pieces_sent{0};
  std::atomic<std::uint64_t> pieces_received{0};
  std::atomic<std::uint64_t> device_changed{0};
};

/// Everything that touches UCX after start-up. Progress thread only.
class core {
 public:
  /// `post`: hands work to the progress thread from any other.
  core(events& sink, shared_state& shared, memory_table& memory,
       std::function<void(std::function<void()>)> post);
  ~core();

  /// Errors: `transport_unavailable`.
  expected<void> open(const std::array<lane_options, lane_count>& options, std::uint64_t instance);

  const std::vector<std::byte>& local_address() const { return local_address_; }
  std::array<shared_context, lane_count> contexts() const;
  std::array<lane*, lane_count> lanes() const { return {lanes_[0].get(), lanes_[1].get()}; }
  bool has(lane_kind kind) const { return lanes_[static_cast<std::size_t>(kind)] != nullptr; }
  /// Whether something is under way, so that spinning a moment may pay.
  bool busy() const { return active_ != 0; }

  /// Progresses all lanes and acts on what came in; whether anything happened.
  bool progress();
  void connect(peer_id id, const worker_address& address, lane_kind kind);
  void disconnect(peer_id id, bool certainly_dead);
  using backlog_counter = std::shared_ptr<std::atomic<std::size_t>>;
  /// `waiting` is decremented when the message has left, whatever the way.
  void send_control(peer_id to, std::vector<std::byte> bytes, backlog_counter waiting);
  void send(peer_id to, piece_tag tag, std::span<const std::byte> bytes, completion done);
  void receive(std::uint64_t offer, std::span<std::byte> into, completion done);
  void decline(std::uint64_t offer);
  std::string transports(peer_id id);
  /// Says goodbye to everyone, newcomers included; `over` tells when the last is gone.
  void begin_shut_down();
  bool over() const { return peers_.empty(); }
  /// Ends what is left and frees UCX's side.
  void end_shut_down();

 private:
  struct incoming {
    enum class kind : std::uint8_t { control, large_control, piece, failure };
    kind what = kind::control;
    lane* via = nullptr;
    peer* failed = nullptr;
    ucs_status_t status = UCS_OK;
    control_header control;
    piece_header piece;
    std::vector<std::byte> bytes;
    ucp_ep_h reply = nullptr;
    void* descriptor = nullptr;
    std::size_t size = 0;
  };
  struct offer {
    peer* from = nullptr;
    void* descriptor = nullptr;
    std::size_t size = 0;
    std::uint64_t number = 0;
  };
  struct handler_argument {
    core* owner = nullptr;
    lane* via = nullptr;
  };

  // Called by UCX; they only note what happened.
  static ucs_status_t on_control(void* argument, const void* header, std::size_t header_size,
                                 void* data, std::size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t on_piece(void* argument, const void* header, std::size_t header_size,
                               void* data, std::size_t size, const ucp_am_recv_param_t* param);
  static void on_connection(ucp_conn_request_h request, void* argument);
  static void on_failure(void* argument, ucp_ep_h endpoint, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_received(void* request, ucs_status_t status, std::size_t size, void* user_data);
  static void on_closed(void* request, ucs_status_t status, void* user_data);

  void handle(incoming& in);
  void handle_control(peer& from, const control_header& header, std::span<const std::byte> bytes);
  void accept(lane_kind kind, ucp_conn_request_h request);
  void greet(const incoming& in);
  void welcome(peer& greeted);
  void receive_large_control(peer& from, incoming& in);
  void offer_piece(peer& from, incoming& in);

  peer* find(peer_id id);
  peer* find_connection(std::uint64_t connection);
  /// Also true for one whose hello waits in the inbox.
  bool knows(std::uint64_t connection);
  void drop_unsent(peer& gone);
  void become_ready(peer& greeted);
  void send_now(peer& to, piece_tag tag, std::span<const std::byte> bytes, completion done);
  peer& add_peer(peer_id id, lane& via);
  void introduce(peer& known, std::uint64_t connection, std::uint64_t instance);
  peer_id next_id();
  void queue_control(peer& to, control_kind kind, std::vector<std::byte> bytes,
                     backlog_counter waiting = nullptr, void* release_after = nullptr);
  void on_declined(peer& by, std::span<const std::byte> number);
  void decline(const offer& refused);
  void release(lane& via, void* descriptor);
  void start_next_control(peer& to);
  operation& begin(peer& with, std::unique_ptr<operation> made);
  void started(operation& made, ucs_status_ptr_t result);
  void finish(operation& ended, ucs_status_t status, std::size_t size);
  void report(operation& ended, ucs_status_t status, std::size_t size);
  /// A failed endpoint's sockets outlive it for some rounds of progress, and what they still hold
  /// goes on into the buffers of its receives, ended or not: so a failed receive is reported only
  /// `settle_ms` after its endpoint has closed and once a round of progress has found nothing more
  /// to read.
  void park(peer& with, std::unique_ptr<operation> failed);
  /// Only when the lanes are quiet, unless `all`.
  bool end_settled(bool all);

  /// How a connection ends: both sides in order, or its process or wire broken.
  enum class ending : std::uint8_t { orderly, broken };
  /// Tells the owner, ends what was not begun; what UCX still works on ends when UCX says so.
  void lose(peer& gone, const error& why, ending how, bool tell);
  /// A connection came to nothing before it stood.
  void not_connected(const lane& via);
  /// UCX 1.13 fails assertions when an endpoint is closed that has not yet connected, or that
  /// failed to: an orderly end waits until the connection stands, and an endpoint that never did is
  /// kept (a few KiB) until the worker goes.
  static bool may_close(const peer& gone);
  void close(peer& gone);
  void fail_late(peer& gone);
  /// Its process has ended: nobody writes any more, so what UCX still holds is nobody's concern.
  void abandon(peer& gone);
  void forget_if_over(peer& gone);
  bool hangs(const lane& via) const;

  events& sink_;
  shared_state& shared_;
  memory_table& memory_;
  std::function<void(std::function<void()>)> post_;
  std::array<handler_argument, lane_count> arguments_{};
  std::array<std::unique_ptr<lane>, lane_count> lanes_;
  std::vector<std::byte> local_address_;
  std::vector<incoming> inbox_;
  std::unordered_map<std::uint64_t, std::unique_ptr<peer>> peers_;  // by peer_id
  std::unordered_map<std::uint64_t, peer*> by_connection_;
  std::unordered_map<std::uint64_t, offer> offers_;
  std::unordered_map<operation*, std::unique_ptr<operation>> abandoned_;
  std::vector<std::unique_ptr<peer>>
      forgotten_;  // endpoints that can't be closed; UCX may still name them
  std::vector<std::unique_ptr<peer>> ended_;  // over, but callers further up may still hold a
                                              // reference; freed by the next `progress`
  struct settling {
    std::chrono::steady_clock::time_point due;
    std::unique_ptr<operation> failed;
  };
  std::deque<settling> settling_;
  std::uint64_t next_offer_ = 1;
  std::size_t active_ = 0;
  bool shutting_down_ = false;
};

}  // namespace troupe::transfer::ucx
