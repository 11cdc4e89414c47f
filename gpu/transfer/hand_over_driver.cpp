// What both sides of a hand-over share: beginning and end of the service, messages to their
// sessions, lost peers, deadlines. The sides: hand_over_sending.cpp, hand_over_receiving.cpp.

#include "gpu/transfer/hand_over_turn.hpp"
#include "messages/base/planted.hpp"

#include <algorithm>
#include <array>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe::transfer {

expected<void> hand_over_service::driver::start(const make_backend& make) {
  auto transport = make(*this);
  if (!transport) return std::move(transport).error();
  transport_ = *std::move(transport);
  auto pool = buffer_pool::make(*transport_, options_.piece_bytes, options_.buffers);
  if (!pool) return std::move(pool).error();
  pool_ = *std::move(pool);
  pool_->on_free([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->buffer_freed();
  });
  return ok;
}

void hand_over_service::driver::stop() {
  std::deque<std::function<void()>> undelivered;  // what they hold comes back here when it ends
  {
    turn t(*this);
    stopped_ = true;
    for (auto& [key, s] : sending_)
      for (auto& [number, piece] : s->pieces) trash_.push_back(std::move(piece.buffer));
    sending_.clear();
    receiving_.clear();
    undelivered.swap(callbacks_);
  }
  undelivered.clear();
  // Joins the progress thread; its last completions find the sessions gone.
  transport_.reset();
}

hand_over_service::driver::sending* hand_over_service::driver::find_sending(const job_key& key) {
  auto found = sending_.find(key);
  return found == sending_.end() ? nullptr : found->second.get();
}

hand_over_service::driver::receiving* hand_over_service::driver::find_receiving(
    const job_key& key) {
  auto found = receiving_.find(key);
  return found == receiving_.end() ? nullptr : found->second.get();
}

std::uint64_t hand_over_service::driver::transfer_number(const job_key& key,
                                                         const transfer_token& token) {
  const std::array<std::uint64_t, 4> names{key.id.high, key.id.low, key.prompt, key.attempt};
  return XXH3_64bits_withSeed(token.data(), token.size(), XXH3_64bits(names.data(), sizeof names));
}

std::size_t hand_over_service::driver::share() const {
  return std::max<std::size_t>(1, pool_->count() / 2);
}

bool hand_over_service::driver::leaves_some(peer_id peer) const {
  if (heard_.size() == heard_.count(peer)) return true;  // nobody else is known
  const auto held = held_.find(peer);
  return held == held_.end() || held->second < pool_->free();
}

void hand_over_service::driver::say(peer_id to, const job_key& key, const transfer_token& token,
                                    hand_over_message::body_type body) {
  if (stopped_) return;  // the transport is ending
  const auto bytes = encode({key, {token.begin(), token.end()}, std::move(body)});
  // A peer that is gone, or so slow that its backlog is full, is noticed by loss or deadline.
  [[maybe_unused]] auto sent = transport_->send_control(to, bytes);
}

void hand_over_service::driver::buffer_freed() {
  {
    turn t(*this);
    while (!stopped_ && !waiting_offers_.empty() && take_in(waiting_offers_.front()))
      waiting_offers_.pop_front();
  }
  std::lock_guard lock(buffer_free_mutex_);
  if (buffer_free_call_) buffer_free_call_();
}

void hand_over_service::driver::on_buffer_free(std::function<void()> call) {
  std::lock_guard lock(buffer_free_mutex_);
  buffer_free_call_ = std::move(call);
}

// -- both ----------------------------------------------------------------------

void hand_over_service::driver::on_control(peer_id from, std::span<const std::byte> bytes) {
  auto message = decode_hand_over(bytes);
  turn t(*this);
  heard_of(from);
  if (message)
    handle(from, *std::move(message));
  else
    ++dropped_messages_;
}

void hand_over_service::driver::handle(peer_id from, hand_over_message message) {
  using m = hand_over_message;
  const auto at = time_now();
  if (auto* open = std::get_if<offer_of_kv>(&message.body)) {
    auto* r = find_receiving(message.key);
    if (r != nullptr && same_token(r->token, message.token))
      return opened(*r, from, std::move(*open));
    transfer_token token{};
    std::copy_n(message.token.begin(), std::min(token.size(), message.token.size()), token.begin());
    if (r != nullptr) {
      ++dropped_messages_;
      return say(from, message.key, token,
                 m::refuse{{"wrong_token", "the transfer token is not this job's"}});
    }
    if (early_.size() >= early_opens_max || early_tokens() + open->tokens.size() > early_tokens_max)
      return say(
          from, message.key, token,
          m::refuse{{"too_many_hand_overs", "too many hand-overs wait for their decode job"}});
    early_.push_back({from, std::move(message), at});
    return;
  }
  if (auto* s = find_sending(message.key);
      s != nullptr && s->peer == from && same_token(s->token, message.token)) {
    if (auto* grant = std::get_if<m::grant>(&message.body))
      return run(*s, s->session.granted(at, grant->keep, grant->keep_digest, grant->credit_bytes));
    if (auto* refuse = std::get_if<m::refuse>(&message.body))
      return run(*s, s->session.refused(refuse->why));
    if (std::holds_alternative<m::queued>(message.body)) return s->session.queued(at);
    if (auto* credit = std::get_if<m::credit>(&message.body))
      return run(*s, s->session.credited(at, credit->bytes));
    if (std::holds_alternative<m::adopted>(message.body)) return run(*s, s->session.adopted(at));
    if (auto* abort = std::get_if<m::abort>(&message.body))
      return run(*s, s->session.aborted(abort->why));
  }
  if (auto* r = find_receiving(message.key);
      r != nullptr && r->peer == from && same_token(r->token, message.token)) {
    if (auto* end = std::get_if<m::end>(&message.body))
      return run(*r, r->session.ended(at, end->pieces, end->bytes));
    if (auto* abort = std::get_if<m::abort>(&message.body))
      return run(*r, r->session.aborted(abort->why));
  }
  if (std::holds_alternative<m::abort>(message.body) && !planted::is(planted::bug::keep_early_open))
    std::erase_if(early_, [&](const early_open& e) {
      return e.from == from && e.message.key == message.key;
    });
  ++dropped_messages_;
}

void hand_over_service::driver::opened(receiving& r, peer_id from, offer_of_kv offer) {
  if (!r.peer) r.peer = from;
  if (r.peer != from) {
    ++dropped_messages_;
    return;
  }
  const auto tokens = offer.tokens.size();
  const auto until = offer.kv_until;
  const auto layout = offer.layout;
  r.offer = std::move(offer);
  run(r, r.session.opened(time_now(), tokens, until, layout));
}

void hand_over_service::driver::cancel(const job_key& key, error why) {
  turn t(*this);
  if (auto* s = find_sending(key)) run(*s, s->session.cancel(why));
  if (auto* r = find_receiving(key)) run(*r, r->session.cancel(why));
}

void hand_over_service::driver::cancel_all(const error& why) {
  turn t(*this);
  // A session that ends removes itself.
  while (!sending_.empty())
    run(*sending_.begin()->second, sending_.begin()->second->session.cancel(why));
  while (!receiving_.empty())
    run(*receiving_.begin()->second, receiving_.begin()->second->session.cancel(why));
}

/// A connection over which a hand-over's time went by without a word, though messages were to come
/// or go, may hang while its host is well: a transport can leave the one that connects waiting.
/// Another one is made by the next hand-over; on this one all of them would wait in vain. On one
/// host a peer that says nothing is its launcher's business.
std::vector<peer_id> hand_over_service::driver::silent_peers(time_point at) const {
  std::vector<peer_id> found;
  for (const auto& [key, s] : sending_) {
    const auto heard = heard_.find(s->peer);
    if (s->where == proximity::other_host && at - s->began >= options_.timeout &&
        (heard == heard_.end() || heard->second < s->began) &&
        std::find(found.begin(), found.end(), s->peer) == found.end())
      found.push_back(s->peer);
  }
  return found;
}

void hand_over_service::driver::tick(time_point at) {
  std::vector<peer_id> silent;
  {
    turn t(*this);
    silent = silent_peers(at);
    end_late(at);
  }
  for (auto peer : silent) {
    transport_->disconnect(peer, false);
    on_peer_lost(peer, {"peer_failed", "the other worker's KV transport says nothing"});
  }
}

void hand_over_service::driver::end_late(time_point at) {
  // A session that ends removes itself.
  for (auto next = sending_.begin(); next != sending_.end();) {
    auto& s = *(next++)->second;
    // A job that was set aside doesn't ask any more.
    if (s.lacks_buffer && at - s.asked >= options_.timeout / 2) s.lacks_buffer.reset();
    if (s.lacks_buffer && at - *s.lacks_buffer >= options_.timeout)
      run(s, s.session.cancel(
                 {"no_transfer_buffer", "no buffer for a piece of KV has come back in time"}));
    else
      run(s, s.session.tick(at));
  }
  for (auto next = receiving_.begin(); next != receiving_.end();) {
    auto& r = *(next++)->second;
    run(r, r.session.tick(at));
  }
  if (planted::is(planted::bug::keep_early_open)) return;
  while (!early_.empty() && at - early_.front().since >= options_.timeout) {
    auto& e = early_.front();
    transfer_token token{};
    std::copy_n(e.message.token.begin(), std::min(token.size(), e.message.token.size()),
                token.begin());
    say(e.from, e.message.key, token,
        hand_over_message::refuse{{"unknown_job", "no decode job came for this hand-over"}});
    early_.pop_front();
  }
}

void hand_over_service::driver::on_peer_lost(peer_id peer, const error& why) {
  turn t(*this);
  heard_.erase(peer);
  for (auto next = sending_.begin(); next != sending_.end();) {
    auto& s = *(next++)->second;
    if (s.peer == peer) run(s, s.session.aborted(why));
  }
  for (auto next = receiving_.begin(); next != receiving_.end();) {
    auto& r = *(next++)->second;
    if (r.peer == peer) run(r, r.session.aborted(why));
  }
  std::erase_if(early_, [&](const early_open& e) { return e.from == peer; });
}

void hand_over_service::driver::worker_gone(std::span<const std::byte> address,
                                            bool certainly_dead) {
  auto peers = transport_->peers_at(address);
  {
    turn t(*this);
    std::vector<std::byte> name(address.begin(), address.end());
    auto known = perhaps_alive_.find(name);
    if (known != perhaps_alive_.end())
      peers.insert(peers.end(), known->second.begin(), known->second.end());
    if (certainly_dead)
      perhaps_alive_.erase(name);
    else if (!peers.empty())
      perhaps_alive_[name] = peers;
  }
  for (auto peer : peers) {
    transport_->disconnect(peer, certainly_dead);
    on_peer_lost(peer, {"peer_failed", "the other worker is gone"});
  }
}

hand_over_service::gauges hand_over_service::driver::read_gauges() const {
  std::lock_guard lock(mutex_);
  return {sending_.size(), receiving_.size(),      early_.size(),    pool_->free(),
          pool_->count(),  transport_->counters(), dropped_messages_};
}

}  // namespace troupe::transfer
