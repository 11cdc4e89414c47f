// A stream that goes on elsewhere: this worker, which drains, offers it; its request finds a place;
// the engine lets it go between two steps, and from then on the job is the prefill leg of the
// request's next attempt: its KV goes by the same hand-over.

#include "actors/workers/move_policy.hpp"
#include "actors/workers/token_batch.hpp"
#include "actors/workers/worker_state.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace troupe::workers {

/// As far as this worker knows; the engine has the last word.
bool worker_state::can_leave(const job& j) const {
  return options.hand_over && j.kind != job_kind::prefill && j.plan && j.choices == 1 &&
         j.in_engine && !j.handing_over && !j.ended && !j.departing;
}

/// Its requester renews both names from the moment that it has asked for the move.
bool worker_state::is_leaving_as(const transfer::job_key& next) const {
  for (auto i = open.lower_bound({next.id, next.prompt, 0});
       i != open.end() && i->first.id == next.id && i->first.prompt == next.prompt; ++i)
    if (const auto& to = jobs.at(i->second).departing; to && to->next_attempt == next.attempt)
      return true;
  return false;
}

void worker_state::offer_moves() {
  const auto t = now();
  std::size_t moving = 0;
  for (const auto& [key, id] : open) {
    const auto& j = jobs.at(id);
    if (j.departing || (j.move_asked && t - *j.move_asked < move_again_after)) ++moving;
  }
  drain_outlook outlook;
  outlook.left = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::max(held_until - t, time_point::duration{0}));
  outlook.move_all = t >= move_at;
  if (const auto running = options.host->engine().gauges().running; running > 0)
    outlook.tokens_per_second = decode_rate / static_cast<float>(running);
  for (const auto& [key, id] : open) {
    if (moving >= moves_at_once_max) return;
    auto& j = jobs.at(id);
    if (!can_leave(j) || (j.move_asked && t - *j.move_asked < move_again_after)) continue;
    if (!should_move({options.host->sampled(id), j.max_tokens}, outlook)) continue;
    j.move_asked = t;
    ++moving;
    msg::draft<msg::MoveNotice> d;
    write(d->initKey(), key);
    d->setWorker(options.self.name);
    d->setWanted();
    send(j.reply_to, std::move(d));
  }
}

void worker_state::move(const link::origin& from, msg::MoveJob::Reader in) {
  const auto key = msg::read(in.getKey());
  auto* j = find(key);
  const auto token = in.getTransferToken();
  job::departure to;
  to.next_attempt = in.getNextAttempt();
  if (!j || !can_leave(*j) || token.size() != to.token.size() || to.next_attempt <= key.attempt)
    return refuse_move(from.from.name, key, {"cannot_move", "it is not a stream that can leave"});
  std::copy(token.begin(), token.end(), reinterpret_cast<kj::byte*>(to.token.data()));
  const auto address = in.getDecode().getTransferAddress();
  to.peer.assign(reinterpret_cast<const std::byte*>(address.begin()),
                 reinterpret_cast<const std::byte*>(address.end()));
  to.same_host = in.getDecode().getSameHost();
  note_peer(in.getDecode());
  j->departing = std::move(to);
  options.host->engine().leave(j->id);
}

void worker_state::departed(engine_events::departure& x) {
  auto* j = find(x.job);
  if (!j || j->ended || !j->departing) return;  // its cancel is on its way to the engine
  const auto old = j->key;
  open.erase(old);
  j->key.attempt = j->departing->next_attempt;
  open[j->key] = j->id;
  options.host->route(j->id, {j->key, j->reply_to});
  j->kind = job_kind::prefill;
  j->token = j->departing->token;
  j->peer = std::move(j->departing->peer);
  j->same_host = j->departing->same_host;
  j->lease_until = now() + j->lease;
  msg::draft<msg::MoveNotice> d;
  write(d->initKey(), old);
  d->setWorker(options.self.name);
  d->setMoving(j->key.attempt);
  send(j->reply_to, std::move(d));
  spdlog::info("event=stream_leaves worker={} tokens={} answer={}", options.self.name,
               x.tokens.size(), x.answer);
  const auto& info = options.host->info();
  transfer::offer_of_kv offer;
  offer.kv_until = static_cast<engine::position>(x.tokens.size() - 1);
  offer.tokens = std::move(x.tokens);
  offer.answer = x.answer;
  offer.bytes_per_token = info.kv_bytes_per_token;
  offer.layout = info.kv_layout;
  offer.plan = *j->plan;
  hand_over(*j, std::move(offer));
}

void worker_state::stays(const engine_events::stay& x) {
  auto* j = find(x.job);
  if (!j || j->ended || !j->departing) return;
  j->departing.reset();
  refuse_move(j->reply_to, j->key, x.why);
}

void worker_state::refuse_move(const std::string& to, const transfer::job_key& key,
                               const error& why) {
  msg::draft<msg::MoveNotice> d;
  write(d->initKey(), key);
  d->setWorker(options.self.name);
  write_failure(d->initRefused(), why, 503, true);
  send(to, std::move(d));
}

}  // namespace troupe::workers
