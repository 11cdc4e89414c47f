// The sender's side: what its sessions decide is carried out here.

#include "gpu/transfer/hand_over_turn.hpp"

#include <algorithm>
#include <utility>

namespace troupe::transfer {

/// A piece's memory on its way out; counted, so that no session takes all of it.
class hand_over_service::driver::counted_buffer final : public engine::piece_buffer {
 public:
  counted_buffer(std::unique_ptr<engine::piece_buffer> inner, std::weak_ptr<driver> owner,
                 const job_key& key, peer_id peer)
      : inner_(std::move(inner)), owner_(std::move(owner)), key_(key), peer_(peer) {}
  ~counted_buffer() override {
    // The count first: who is woken by the buffer's return may want it at once.
    if (auto owner = owner_.lock()) owner->give_back(key_, peer_);
    inner_.reset();
  }
  std::span<std::byte> bytes() override { return inner_->bytes(); }

 private:
  std::unique_ptr<engine::piece_buffer> inner_;
  std::weak_ptr<driver> owner_;
  job_key key_;
  peer_id peer_;
};

expected<void> hand_over_service::driver::start_send(outgoing what, send_callbacks calls) {
  turn t(*this);
  if (stopped_ || sending_.size() + receiving_.size() >= sessions_max)
    return error{"too_many_hand_overs", "this worker runs as many KV hand-overs as it may"};
  if (find_sending(what.key) != nullptr)
    return error{"duplicate_job", "this attempt's KV is being sent already"};
  auto peer = transport_->connect(what.peer, what.where);
  if (!peer) return std::move(peer).error();
  const auto until = what.offer.kv_until;
  send_session session(time_now(), options_.timeout, what.offer.tokens, until);
  auto made = std::make_unique<sending>(sending{what.key,
                                                what.token,
                                                *peer,
                                                what.where,
                                                time_now(),
                                                transfer_number(what.key, what.token),
                                                std::move(session),
                                                std::move(calls),
                                                {},
                                                until,
                                                {},
                                                {},
                                                {}});
  what.offer.layout = options_.layout;
  const auto bytes = encode(
      {what.key, {what.token.begin(), what.token.end()}, std::move(what.offer)});
  if (auto sent = transport_->send_control(*peer, bytes); !sent) return sent;
  sending_[what.key] = std::move(made);
  return ok;
}

std::unique_ptr<engine::piece_buffer> hand_over_service::driver::acquire_piece_buffer(
    const job_key& key, std::size_t size) {
  turn t(*this);
  auto* s = find_sending(key);
  if (s == nullptr) return nullptr;  // over: the job hears of it
  const bool may = (sending_.size() == 1 || s->buffers < share()) && leaves_some(s->peer);
  auto buffer = may ? pool_->acquire(size) : nullptr;
  s->asked = time_now();
  if (!buffer) {
    if (!s->lacks_buffer && s->buffers == 0) s->lacks_buffer = s->asked;
    return nullptr;
  }
  s->lacks_buffer.reset();
  ++s->buffers;
  ++held_[s->peer];
  return std::make_unique<counted_buffer>(std::move(buffer), weak_from_this(), key, s->peer);
}

void hand_over_service::driver::give_back(const job_key& key, peer_id peer) {
  turn t(*this);
  if (auto held = held_.find(peer); held != held_.end() && --held->second == 0) held_.erase(held);
  if (auto* s = find_sending(key); s != nullptr && s->buffers > 0) --s->buffers;
}

void hand_over_service::driver::send_piece(const job_key& key, engine::kv_piece piece) {
  turn t(*this);
  auto* s = find_sending(key);
  if (s == nullptr) {
    trash_.push_back(std::move(piece.buffer));
    return;
  }
  const auto number = s->session.pieces();
  const auto begin = piece.begin;
  const auto end = piece.end;
  const auto size = piece.size;
  s->pieces[number] = std::move(piece);
  run(*s, s->session.ready(time_now(), begin, end, size));
}

void hand_over_service::driver::finish_send(const job_key& key) {
  turn t(*this);
  if (auto* s = find_sending(key)) {
    s->finished = time_now();
    run(*s, s->session.finish(s->finished));
  }
}

void hand_over_service::driver::run(sending& s, const actions& todo) {
  for (const auto& a : todo) {
    switch (a.what) {
    case does::send_piece:
      send_out(s, a.piece);
      break;
    case does::send_end:
      say(s.peer, s.key, s.token, hand_over_message::end{s.session.pieces(), s.session.bytes()});
      break;
    case does::send_abort:
      say(s.peer, s.key, s.token, hand_over_message::abort{a.why});
      break;
    case does::tell_granted:
      call([f = s.calls.on_granted, keep = s.session.keep()] { f(keep); });
      break;
    case does::tell_done: {
      transfer_stats stats{s.session.bytes(),
                           s.session.pieces(),
                           s.session.keep(),
                           s.kv_until,
                           {},
                           time_between(s.finished, time_now()),
                           {},
                           std::chrono::duration_cast<std::chrono::microseconds>(s.wire_time)};
      if (s.first_sent) stats.moving = time_between(*s.first_sent, s.last_acked);
      call([self = shared_from_this(), f = s.calls.on_done, stats, peer = s.peer]() mutable {
        stats.transports = self->transport_->transports(peer);
        f(std::move(stats));
      });
      break;
    }
    case does::tell_failed:
      call([f = s.calls.on_failed, why = a.why] { f(why); });
      break;
    default:
      break;
    }
  }
  if (s.session.over()) finish(s);
}

void hand_over_service::driver::finish(sending& s) {
  for (auto& [number, piece] : s.pieces) trash_.push_back(std::move(piece.buffer));
  sending_.erase(job_key(s.key));
}

void hand_over_service::driver::send_out(sending& s, std::uint32_t number) {
  auto node = s.pieces.extract(number);
  auto piece = std::make_shared<engine::kv_piece>(std::move(node.mapped()));
  const auto now = time_now();
  if (!s.first_sent) s.first_sent = now;
  if (s.on_wire++ == 0) s.wire_since = now;
  const std::span<const std::byte> bytes = piece->buffer->bytes().first(piece->size);
  const piece_tag tag{s.transfer, number, piece->begin, piece->end};
  transport_->send(s.peer, tag, bytes,
                   [this, key = s.key, piece](const outcome& how) { piece_sent(key, piece, how); });
}

void hand_over_service::driver::piece_sent(const job_key& key,
                                           std::shared_ptr<engine::kv_piece> piece,
                                           const outcome& how) {
  turn t(*this);
  trash_.push_back(std::move(piece->buffer));
  auto* s = find_sending(key);
  if (s == nullptr) return;
  if (how.ok) heard_of(s->peer);
  s->last_acked = time_now();
  if (--s->on_wire == 0) s->wire_time += s->last_acked - s->wire_since;
  run(*s, s->session.sent(s->last_acked, how.ok, how.why));
}

}  // namespace troupe::transfer
