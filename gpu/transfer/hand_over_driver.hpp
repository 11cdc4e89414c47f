#pragma once

// Inside of hand_over_service: carries out what the sessions decide. Sources by meaning:
// hand_over_driver.cpp (both sides), hand_over_sending.cpp, hand_over_receiving.cpp.

#include "gpu/transfer/buffer_pool.hpp"
#include "gpu/transfer/hand_over_service.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace troupe::transfer {

class hand_over_service::driver final : public events, public std::enable_shared_from_this<driver> {
 public:
  explicit driver(const options& how) : options_(how) {}

  expected<void> start(const make_backend& transport);
  void stop();

  std::vector<std::byte> local_address() const { return transport_->local_address(); }
  std::string transport_name() const { return transport_->name(); }
  std::unique_ptr<engine::piece_buffer> acquire_piece_buffer(const job_key& key, std::size_t size);

  expected<void> start_send(outgoing what, send_callbacks calls);
  void send_piece(const job_key& key, engine::kv_piece piece);
  void finish_send(const job_key& key);
  expected<void> expect(incoming what, receive_callbacks calls);
  void grant(const job_key& key, engine::position keep);
  void refuse(const job_key& key, error why);
  void adopted(const job_key& key);
  void cancel(const job_key& key, error why);
  void cancel_all(const error& why);
  void tick(time_point now);
  void worker_gone(std::span<const std::byte> address, bool certainly_dead);
  void on_buffer_free(std::function<void()> call);
  gauges read_gauges() const;

  // events, on the backend's progress thread
  void on_control(peer_id from, std::span<const std::byte> bytes) override;
  void on_offer(peer_id from, piece_tag tag, std::size_t size, std::uint64_t offer) override;
  void on_peer_lost(peer_id peer, const error& why) override;

 private:
  struct sending {
    job_key key;
    transfer_token token{};
    peer_id peer{};
    proximity where{};
    time_point began{};
    std::uint64_t transfer = 0;
    send_session session;
    send_callbacks calls;
    std::map<std::uint32_t, engine::kv_piece> pieces;  // ready, not yet sent; by number
    engine::position kv_until = 0;
    std::optional<time_point> first_sent;
    time_point last_acked{};
    std::uint32_t on_wire = 0;  ///< pieces
    time_point wire_since{};    ///< while there are some
    std::chrono::nanoseconds wire_time{0};
    time_point finished{};
    std::size_t buffers = 0;  // that its pieces hold
    // Since when it has asked for a buffer in vain, and when it last did.
    std::optional<time_point> lacks_buffer{};
    time_point asked{};
  };
  struct receiving {
    job_key key;
    transfer_token token{};
    std::optional<peer_id> peer;
    std::uint64_t transfer = 0;
    engine::job_id job = 0;
    receive_session session;
    receive_callbacks calls;
    offer_of_kv offer;
    std::optional<time_point> first_offered;
    std::uint64_t bytes = 0;
    std::uint32_t pieces = 0;
    time_point last_arrived{};
  };
  struct early_open {
    peer_id from;
    hand_over_message message;
    time_point since;
  };
  struct waiting_offer {
    job_key key;
    peer_id from;
    piece_tag tag;
    std::size_t size;
    std::uint64_t number;
  };
  class counted_buffer;
  class credited_buffer;
  class turn;  // hand_over_turn.hpp

  /// Both sides derive the same number from what only they know.
  static std::uint64_t transfer_number(const job_key& key, const transfer_token& token);
  /// Buffers that one session may hold while others run, too.
  std::size_t share() const;
  /// Whether pieces for this peer may have another buffer: of what others may want, too, a peer has
  /// no more than is free (dynamic thresholds, Choudhury and Hahne 1998), so that one behind a slow
  /// wire never has all.
  bool leaves_some(peer_id peer) const;

  time_point time_now() const {
    return options_.now ? options_.now() : std::chrono::steady_clock::now();
  }
  void handle(peer_id from, hand_over_message message);
  void opened(receiving& r, peer_id from, offer_of_kv offer);
  void run(sending& s, const actions& todo);
  void run(receiving& r, const actions& todo);
  void finish(sending& s);
  void finish(receiving& r);
  void send_out(sending& s, std::uint32_t number);
  bool take_in(const waiting_offer& offer);
  void piece_sent(const job_key& key, std::shared_ptr<engine::kv_piece> piece, const outcome& how);
  void piece_arrived(const waiting_offer& offer,
                     std::shared_ptr<std::unique_ptr<engine::piece_buffer>> buffer,
                     const outcome& how);
  void give_credit(const job_key& key, std::size_t bytes);
  void give_back(const job_key& key, peer_id peer);
  std::uint32_t first_credit() const;
  std::size_t early_tokens() const;
  void buffer_freed();
  /// Something came from it, or came through to it.
  void heard_of(peer_id peer) { heard_[peer] = time_now(); }
  std::vector<peer_id> silent_peers(time_point at) const;
  void end_late(time_point at);
  void say(peer_id to, const job_key& key, const transfer_token& token,
           hand_over_message::body_type body);
  void call(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }

  sending* find_sending(const job_key& key);
  receiving* find_receiving(const job_key& key);

  const options options_;
  std::unique_ptr<backend> transport_;
  std::unique_ptr<buffer_pool> pool_;
  std::mutex buffer_free_mutex_;  // held while it is called
  std::function<void()> buffer_free_call_;

  mutable std::mutex mutex_;
  std::map<job_key, std::unique_ptr<sending>> sending_;
  std::map<job_key, std::unique_ptr<receiving>> receiving_;
  std::unordered_map<std::uint64_t, job_key> by_transfer_;
  std::deque<early_open> early_;
  std::deque<waiting_offer> waiting_offers_;  // bounded by credit
  std::map<peer_id, time_point> heard_;       // of peers that are connected
  std::map<peer_id, std::size_t> held_;  // buffers that pieces for it hold, also after its jobs
  std::map<std::vector<std::byte>, std::vector<peer_id>>
      perhaps_alive_;  // disconnected, their buffers still in quarantine
  std::uint64_t dropped_messages_ = 0;
  bool stopped_ = false;

  std::deque<std::function<void()>> callbacks_;
  std::vector<std::unique_ptr<engine::piece_buffer>> trash_;
  bool delivering_ = false;
};

}  // namespace troupe::transfer
