// The receiver's side: what its sessions decide is carried out here.

#include "gpu/transfer/hand_over_turn.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::transfer {

namespace {

/// What one session may have on its way: enough to hide the round trip.
constexpr std::uint64_t credit_pieces = 4;

}  // namespace

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

expected<void> hand_over_service::driver::expect(incoming what, receive_callbacks calls) {
  turn t(*this);
  if (stopped_ || sending_.size() + receiving_.size() >= sessions_max)
    return error{"too_many_hand_overs", "this worker runs as many KV hand-overs as it may"};
  if (find_receiving(what.key) != nullptr)
    return error{"duplicate_job", "this attempt's KV is expected already"};
  const auto number = transfer_number(what.key, what.token);
  receive_session session(time_now(), options_.timeout, options_.layout);
  auto made = std::make_unique<receiving>(receiving{
      what.key, what.token, {}, number, what.job, session, std::move(calls), {}, {}, 0, 0, {}});
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

std::size_t hand_over_service::driver::early_tokens() const {
  std::size_t sum = 0;
  for (const auto& e : early_) sum += std::get<offer_of_kv>(e.message.body).tokens.size();
  return sum;
}

/// Enough to hide the round trip, and never so much that one session fills all buffers.
std::uint32_t hand_over_service::driver::first_credit() const {
  const auto pieces = std::min<std::uint64_t>(credit_pieces, share());
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      pieces * options_.piece_bytes, std::numeric_limits<std::uint32_t>::max()));
}

void hand_over_service::driver::grant(const job_key& key, engine::position keep) {
  turn t(*this);
  auto* r = find_receiving(key);
  if (r == nullptr) return;
  run(*r, r->session.grant(time_now(), keep, first_credit()));
}

void hand_over_service::driver::refuse(const job_key& key, error why) {
  turn t(*this);
  if (auto* r = find_receiving(key)) run(*r, r->session.refuse(std::move(why)));
}

void hand_over_service::driver::adopted(const job_key& key) {
  turn t(*this);
  if (auto* r = find_receiving(key)) run(*r, r->session.adopt(time_now()));
}

void hand_over_service::driver::run(receiving& r, const actions& todo) {
  for (const auto& a : todo) {
    switch (a.what) {
    case does::send_grant: {
      const auto keep = r.session.keep();
      say(*r.peer, r.key, r.token,
          hand_over_message::grant{keep, digest_of(std::span(r.offer.tokens).first(keep)),
                                   first_credit()});
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
      if (r.first_offered) stats.moving = time_between(*r.first_offered, r.last_arrived);
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
  const auto at = time_now();
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
  const auto at = time_now();
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

}  // namespace troupe::transfer
