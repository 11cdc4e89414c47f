#include "gpu/transfer/hand_over_driver.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::transfer {

namespace {

/// What one session may have on its way: enough to hide the round trip.
constexpr std::uint64_t credit_pieces = 4;

time_point now() { return std::chrono::steady_clock::now(); }

/// Both sides derive the same number from what only they know.
std::uint64_t transfer_number(const job_key& key, const transfer_token& token) {
  const std::array<std::uint64_t, 4> names{key.id.high, key.id.low, key.prompt, key.attempt};
  return XXH3_64bits_withSeed(token.data(), token.size(), XXH3_64bits(names.data(), sizeof names));
}

std::chrono::microseconds between(time_point a, time_point b) {
  return std::chrono::duration_cast<std::chrono::microseconds>(b - a);
}

}  // namespace

class hand_over_service::driver::turn {
 public:
  explicit turn(driver& d) : driver_(d), lock_(d.mutex_) {}
  ~turn() {
    auto trash = std::exchange(driver_.trash_, {});
    const bool first = !std::exchange(driver_.delivering_, true);
    // Another turn, here or on another thread, is delivering already: it also delivers ours, which
    // keeps the order.
    while (first && !driver_.callbacks_.empty()) {
      auto next = std::move(driver_.callbacks_.front());
      driver_.callbacks_.pop_front();
      lock_.unlock();
      next();
      next = nullptr;
      lock_.lock();
    }
    if (first) driver_.delivering_ = false;
    lock_.unlock();
    trash.clear();
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

 private:
  driver& driver_;
  std::unique_lock<std::mutex> lock_;
};

/// A piece's memory on its way out; counted, so that no session takes all of it.
class hand_over_service::driver::counted_buffer final : public engine::piece_buffer {
 public:
  counted_buffer(std::unique_ptr<engine::piece_buffer> inner, std::weak_ptr<driver> owner,
                 const job_key& key)
      : inner_(std::move(inner)), owner_(std::move(owner)), key_(key) {}
  ~counted_buffer() override {
    // The count first: who is woken by the buffer's return may want it at once.
    if (auto owner = owner_.lock()) owner->give_back(key_);
    inner_.reset();
  }
  std::span<std::byte> bytes() override { return inner_->bytes(); }

 private:
  std::unique_ptr<engine::piece_buffer> inner_;
  std::weak_ptr<driver> owner_;
  job_key key_;
};

/// A received piece's memory; its end is credit for the sender.
class hand_over_service::driver::credited_buffer final : public engine::piece_buffer {
 public:
  credited_buffer(std::unique_ptr<engine::piece_buffer> inner, std::weak_ptr<driver> owner,
                  const job_key& key, std::size_t bytes)
      : inner_(std::move(inner)), owner_(std::move(owner)), key_(key), bytes_(bytes) {}
  ~credited_buffer() override {
    inner_.reset();
    if (auto owner = owner_.lock()) owner->give_credit(key_, bytes_);
  }
  std::span<std::byte> bytes() override { return inner_->bytes(); }

 private:
  std::unique_ptr<engine::piece_buffer> inner_;
  std::weak_ptr<driver> owner_;
  job_key key_;
  std::size_t bytes_;
};

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

void hand_over_service::driver::say(peer_id to, const job_key& key, const transfer_token& token,
                                    hand_over_message::body_type body) {
  if (stopped_) return;  // the transport is ending
  const auto bytes = encode({key, {token.begin(), token.end()}, std::move(body)});
  // A peer that is gone, or so slow that its backlog is full, is noticed by loss or deadline.
  [[maybe_unused]] auto sent = transport_->send_control(to, bytes);
}

// -- sending -------------------------------------------------------------------

expected<void> hand_over_service::driver::start_send(outgoing what, send_callbacks calls) {
  turn t(*this);
  if (stopped_ || sending_.size() + receiving_.size() >= sessions_max)
    return error{"too_many_hand_overs", "this worker runs as many KV hand-overs as it may"};
  if (find_sending(what.key) != nullptr)
    return error{"duplicate_job", "this attempt's KV is being sent already"};
  auto peer = transport_->connect(what.peer, what.where);
  if (!peer) return std::move(peer).error();
  const auto until = what.offer.kv_until;
  send_session session(now(), options_.timeout, what.offer.tokens, until);
  auto made = std::make_unique<sending>(sending{what.key,
                                                what.token,
                                                *peer,
                                                transfer_number(what.key, what.token),
                                                std::move(session),
                                                std::move(calls),
                                                {},
                                                until,
                                                {},
                                                {},
                                                {}});
  what.offer.layout = options_.layout;
  what.offer.sender_generation = options_.generation;
  const auto bytes = encode(
      {what.key, {what.token.begin(), what.token.end()}, std::move(what.offer)});
  if (auto sent = transport_->send_control(*peer, bytes); !sent) return sent;
  sending_[what.key] = std::move(made);
  return ok;
}

/// What one session may hold while others send, too.
std::size_t share_of(std::size_t buffers) { return std::max<std::size_t>(1, buffers / 2); }

std::unique_ptr<engine::piece_buffer> hand_over_service::driver::acquire_piece_buffer(
    const job_key& key, std::size_t size) {
  turn t(*this);
  auto* s = find_sending(key);
  if (s == nullptr) return nullptr;  // over: the job hears of it
  const bool may = sending_.size() == 1 || s->buffers < share_of(pool_->count());
  auto buffer = may ? pool_->acquire(size) : nullptr;
  s->asked = now();
  if (!buffer) {
    if (!s->lacks_buffer && s->buffers == 0) s->lacks_buffer = s->asked;
    return nullptr;
  }
  s->lacks_buffer.reset();
  ++s->buffers;
  return std::make_unique<counted_buffer>(std::move(buffer), weak_from_this(), key);
}

void hand_over_service::driver::give_back(const job_key& key) {
  turn t(*this);
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
  run(*s, s->session.ready(now(), begin, end, size));
}

void hand_over_service::driver::finish_send(const job_key& key) {
  turn t(*this);
  if (auto* s = find_sending(key)) {
    s->finished = now();
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
                           between(s.finished, now()),
                           {}};
      if (s.first_sent) stats.moving = between(*s.first_sent, s.last_acked);
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
  if (!s.first_sent) s.first_sent = now();
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
  s->last_acked = now();
  run(*s, s->session.sent(s->last_acked, how.ok, how.why));
}

// -- receiving -----------------------------------------------------------------

expected<void> hand_over_service::driver::expect(incoming what, receive_callbacks calls) {
  turn t(*this);
  if (stopped_ || sending_.size() + receiving_.size() >= sessions_max)
    return error{"too_many_hand_overs", "this worker runs as many KV hand-overs as it may"};
  if (find_receiving(what.key) != nullptr)
    return error{"duplicate_job", "this attempt's KV is expected already"};
  const auto number = transfer_number(what.key, what.token);
  receive_session session(now(), options_.timeout, options_.layout);
  auto made = std::make_unique<receiving>(receiving{what.key,
                                                    what.token,
                                                    {},
                                                    number,
                                                    what.job,
                                                    std::move(session),
                                                    std::move(calls),
                                                    {},
                                                    {},
                                                    0,
                                                    0,
                                                    {}});
  receiving_[what.key] = std::move(made);
  by_transfer_[number] = what.key;
  auto early = std::find_if(early_.begin(), early_.end(),
                            [&](const early_open& e) { return e.message.key == what.key; });
  if (early != early_.end()) {
    auto open = std::move(*early);
    early_.erase(early);
    handle(open.from, std::move(open.message));
  }
  return ok;
}

/// Enough to hide the round trip, and never so much that one session fills all buffers.
std::uint32_t hand_over_service::driver::first_credit() const {
  const auto pieces = std::min<std::uint64_t>(credit_pieces, share_of(pool_->count()));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      pieces * options_.piece_bytes, std::numeric_limits<std::uint32_t>::max()));
}

void hand_over_service::driver::grant(const job_key& key, engine::position keep) {
  turn t(*this);
  auto* r = find_receiving(key);
  if (r == nullptr) return;
  run(*r, r->session.grant(now(), keep, first_credit()));
}

void hand_over_service::driver::refuse(const job_key& key, error why) {
  turn t(*this);
  if (auto* r = find_receiving(key)) run(*r, r->session.refuse(std::move(why)));
}

void hand_over_service::driver::adopted(const job_key& key) {
  turn t(*this);
  if (auto* r = find_receiving(key)) run(*r, r->session.adopt(now()));
}

void hand_over_service::driver::run(receiving& r, const actions& todo) {
  for (const auto& a : todo) {
    switch (a.what) {
    case does::send_grant: {
      const auto keep = r.session.keep();
      say(*r.peer, r.key, r.token,
          hand_over_message::grant{keep, digest_of(std::span(r.offer.tokens).first(keep)),
                                   first_credit(), options_.generation});
      break;
    }
    case does::send_queued:
      say(*r.peer, r.key, r.token, hand_over_message::queued{});
      break;
    case does::send_refuse:
      if (r.peer) say(*r.peer, r.key, r.token, hand_over_message::refuse{a.why});
      break;
    case does::send_abort:
      if (r.peer) say(*r.peer, r.key, r.token, hand_over_message::abort{a.why});
      break;
    case does::send_adopted:
      say(*r.peer, r.key, r.token, hand_over_message::adopted{});
      break;
    case does::tell_open:
      call([f = r.calls.on_open, offer = r.offer] { f(offer); });
      break;
    case does::tell_end: {
      transfer_stats stats{r.bytes, r.pieces, r.session.keep(), r.offer.kv_until, {}, {}, {}};
      if (r.first_offered) stats.moving = between(*r.first_offered, r.last_arrived);
      call([f = r.calls.on_end, stats] { f(stats); });
      break;
    }
    case does::tell_failed:
      call([f = r.calls.on_failed, why = a.why] { f(why); });
      break;
    default:
      break;
    }
  }
  if (r.session.over()) finish(r);
}

void hand_over_service::driver::finish(receiving& r) {
  for (auto at = waiting_offers_.begin(); at != waiting_offers_.end();) {
    if (at->key == r.key) {
      transport_->decline(at->number);
      at = waiting_offers_.erase(at);
    } else {
      ++at;
    }
  }
  by_transfer_.erase(r.transfer);
  receiving_.erase(job_key(r.key));
}

void hand_over_service::driver::on_offer(peer_id from, piece_tag tag, std::size_t size,
                                         std::uint64_t number) {
  turn t(*this);
  if (stopped_) return;  // the transport is ending, and declines what it still holds
  auto named = by_transfer_.find(tag.transfer);
  auto* r = named == by_transfer_.end() ? nullptr : find_receiving(named->second);
  if (r == nullptr || r->peer != from) {
    transport_->decline(number);
    return;
  }
  const auto at = now();
  const auto todo = r->session.offered(at, tag.begin, tag.end, size, pool_->buffer_bytes());
  if (todo.front().what == does::drop_piece) {
    transport_->decline(number);
    return run(*r, todo);
  }
  if (!r->first_offered) r->first_offered = at;
  waiting_offer offer{r->key, from, tag, size, number};
  if (!waiting_offers_.empty() || !take_in(offer)) waiting_offers_.push_back(offer);
}

bool hand_over_service::driver::take_in(const waiting_offer& offer) {
  auto buffer = pool_->acquire(offer.size);
  if (!buffer) return false;
  auto into = buffer->bytes().first(offer.size);
  auto held = std::make_shared<std::unique_ptr<engine::piece_buffer>>(std::move(buffer));
  transport_->receive(offer.number, into,
                      [this, offer, held](const outcome& how) { piece_arrived(offer, held, how); });
  return true;
}

void hand_over_service::driver::piece_arrived(
    const waiting_offer& offer, std::shared_ptr<std::unique_ptr<engine::piece_buffer>> buffer,
    const outcome& how) {
  turn t(*this);
  auto* r = find_receiving(offer.key);
  if (r == nullptr || r->peer != offer.from || !how.ok) trash_.push_back(std::move(*buffer));
  if (r == nullptr || r->peer != offer.from) return;
  const auto at = now();
  if (how.ok) {
    r->last_arrived = at;
    r->bytes += how.bytes;
    ++r->pieces;
    auto piece = std::make_shared<engine::kv_piece>();
    piece->job = r->job;
    piece->begin = offer.tag.begin;
    piece->end = offer.tag.end;
    piece->size = how.bytes;
    piece->buffer = std::make_unique<credited_buffer>(std::move(*buffer), weak_from_this(),
                                                      offer.key, how.bytes);
    call([f = r->calls.on_piece, piece] { f(std::move(*piece)); });
  }
  run(*r, r->session.arrived(at, how.ok, how.why));
}

void hand_over_service::driver::give_credit(const job_key& key, std::size_t bytes) {
  turn t(*this);
  auto* r = find_receiving(key);
  if (r == nullptr || !r->peer || r->session.now_in() != phase::sending) return;
  r->session.credited(bytes);
  say(*r->peer, key, r->token, hand_over_message::credit{static_cast<std::uint32_t>(bytes)});
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
  if (message)
    handle(from, *std::move(message));
  else
    ++dropped_messages_;
}

void hand_over_service::driver::handle(peer_id from, hand_over_message message) {
  using m = hand_over_message;
  const auto at = now();
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
    if (early_.size() >= early_opens_max)
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
  if (std::holds_alternative<m::abort>(message.body))
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
  run(r, r.session.opened(now(), tokens, until, layout));
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

void hand_over_service::driver::tick(time_point at) {
  turn t(*this);
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
