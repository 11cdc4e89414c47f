#include "gpu/transfer/hand_over.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe::transfer {

namespace {

error broken(std::string what) { return {"hand_over_protocol", std::move(what)}; }

}  // namespace

std::uint64_t digest_of(std::span<const engine::token_id> tokens) {
  return XXH3_64bits(tokens.data(), tokens.size_bytes());
}

bool same_token(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == transfer_token_bytes && b.size() == transfer_token_bytes &&
         CRYPTO_memcmp(a.data(), b.data(), transfer_token_bytes) == 0;
}

// -- both sides ----------------------------------------------------------------

actions session::aborted(error why) {
  if (over()) return {};
  phase_ = phase::freed;
  return {{does::tell_failed, 0, std::move(why)}};
}

actions session::cancel(error why) {
  if (over()) return {};
  phase_ = phase::freed;
  return {{does::send_abort, 0, why}, {does::tell_failed, 0, why}};
}

actions session::late(time_point now, bool waiting, const char* for_what) {
  if (over() || !waiting || now - progress_ < timeout_) return {};
  return fail({"transfer_timeout", fmt::format("no progress for {} ms while waiting for {}",
                                               timeout_.count(), for_what)});
}

// -- sender --------------------------------------------------------------------

actions send_session::granted(time_point now, engine::position keep, std::uint64_t digest,
                              std::uint64_t credit_bytes) {
  if (over()) return {};
  if (phase_ != phase::reserved) return fail(broken("a second grant"));
  if (keep > kv_until_)
    return fail(broken(fmt::format(
        "the receiver says that it holds {} tokens of a prompt that offers {}", keep, kv_until_)));
  if (digest != digest_of(std::span(tokens_).first(keep)))
    return fail({"prefix_mismatch",
                 fmt::format("the {} tokens that the receiver holds are not this prompt's", keep)});
  phase_ = phase::sending;
  progress_ = now;
  keep_ = next_ = keep;
  credit_ = credit_bytes;
  return {{does::tell_granted}};
}

actions send_session::credited(time_point now, std::uint64_t bytes) {
  if (over()) return {};
  if (phase_ == phase::reserved) return fail(broken("credit before the grant"));
  progress_ = now;
  credit_ += bytes;
  return advance(now);
}

actions send_session::ready(time_point now, engine::position begin, engine::position end,
                            std::size_t size) {
  if (over()) return {};
  if (phase_ != phase::sending || finished_ || begin != next_ || end <= begin || end > kv_until_ ||
      size == 0)
    return fail(broken(fmt::format("piece [{}, {}) of {} bytes is out of turn", begin, end, size)));
  if (waiting_.empty() && under_way_ == 0) progress_ = now;
  next_ = end;
  bytes_ += size;
  waiting_.push_back({pieces_++, size});
  return advance(now);
}

actions send_session::sent(time_point now, bool ok, error why) {
  if (under_way_ > 0) --under_way_;
  if (over()) return {};
  if (!ok) return fail(std::move(why));
  progress_ = now;
  return advance(now);
}

actions send_session::finish(time_point now) {
  if (over()) return {};
  if (phase_ != phase::sending || next_ != kv_until_)
    return fail(broken(fmt::format("finished at token {} of {}", next_, kv_until_)));
  finished_ = true;
  progress_ = now;
  return advance(now);
}

actions send_session::advance(time_point now) {
  actions out;
  // A piece goes as soon as there is credit for it; one that alone exceeds what its receiver ever
  // grants is ended by the deadline.
  while (!waiting_.empty() && waiting_.front().size <= credit_) {
    credit_ -= waiting_.front().size;
    ++under_way_;
    out.push_back({does::send_piece, waiting_.front().number});
    waiting_.pop_front();
  }
  if (finished_ && phase_ == phase::sending && waiting_.empty() && under_way_ == 0) {
    phase_ = phase::received;
    progress_ = now;
    out.push_back({does::send_end});
  }
  return out;
}

actions send_session::adopted(time_point) {
  if (over()) return {};
  if (phase_ != phase::received) return fail(broken("adopted before the end"));
  phase_ = phase::adopted;
  return {{does::tell_done}};
}

actions send_session::tick(time_point now) {
  switch (phase_) {
  case phase::reserved:
    return late(now, true, "decode's grant");
  case phase::sending:
    return late(now, !waiting_.empty() || under_way_ > 0, "decode to take a piece");
  case phase::received:
    return late(now, true, "decode to adopt the KV");
  default:
    return {};
  }
}

// -- receiver ------------------------------------------------------------------

actions receive_session::opened(time_point now, std::size_t tokens, engine::position kv_until,
                                std::uint64_t layout) {
  if (over()) return {};
  if (opened_) return fail(broken("a second open"));
  if (tokens == 0 || kv_until >= tokens)
    return refuse(
        broken(fmt::format("KV of {} tokens is offered for a prompt of {}", kv_until, tokens)));
  if (layout != layout_)
    return refuse(
        {"kv_layout_mismatch", fmt::format("the two workers' KV differ (model file, types or "
                                           "layers): {:016x} here, {:016x} there",
                                           layout_, layout)});
  opened_ = true;
  tokens_ = tokens;
  kv_until_ = kv_until;
  progress_ = now;
  return {{does::tell_open}};
}

actions receive_session::grant(time_point now, engine::position keep, std::uint64_t credit_bytes) {
  if (over()) return {};
  if (!opened_ || phase_ != phase::reserved || keep > kv_until_)
    return fail(broken(fmt::format("a grant from token {} out of turn", keep)));
  phase_ = phase::sending;
  progress_ = now;
  keep_ = next_ = keep;
  credit_ = credit_bytes;
  return {{does::send_grant}};
}

actions receive_session::refuse(error why) {
  if (over()) return {};
  phase_ = phase::freed;
  return {{does::send_refuse, 0, why}, {does::tell_failed, 0, why}};
}

actions receive_session::offered(time_point now, engine::position begin, engine::position end,
                                 std::size_t size, std::size_t size_max) {
  auto drop = [&](actions rest) {
    rest.insert(rest.begin(), {does::drop_piece});
    return rest;
  };
  if (over()) return drop({});
  if (phase_ != phase::sending || end_seen_ || begin != next_ || end <= begin || end > kv_until_)
    return drop(fail(broken(fmt::format("piece [{}, {}) came out of turn", begin, end))));
  if (size == 0 || size > size_max)
    return drop(
        fail({"piece_too_large",
              fmt::format("a piece of {} bytes; this worker's buffers have {}", size, size_max)}));
  if (size > credit_)
    return drop(
        fail(broken(fmt::format("a piece of {} bytes with a credit of {}", size, credit_))));
  credit_ -= size;
  next_ = end;
  bytes_ += size;
  ++pieces_;
  ++under_way_;
  progress_ = now;
  return {{does::take_piece}};
}

actions receive_session::arrived(time_point now, bool ok, error why) {
  if (under_way_ > 0) --under_way_;
  if (over()) return {};
  if (!ok) return fail(std::move(why));
  progress_ = now;
  return advance();
}

actions receive_session::ended(time_point now, std::uint32_t pieces, std::uint64_t bytes) {
  if (over()) return {};
  if (phase_ != phase::sending || end_seen_ || pieces != pieces_ || bytes != bytes_ ||
      next_ != kv_until_)
    return fail(broken(fmt::format(
        "the end tells of {} pieces with {} bytes; {} with {} came, up to token {} of {}", pieces,
        bytes, pieces_, bytes_, next_, kv_until_)));
  end_seen_ = true;
  progress_ = now;
  return advance();
}

actions receive_session::advance() {
  if (!end_seen_ || under_way_ > 0 || std::exchange(end_told_, true)) return {};
  phase_ = phase::received;
  return {{does::tell_end}};
}

actions receive_session::adopt(time_point) {
  if (over()) return {};
  if (phase_ != phase::received) return fail(broken("adopted before everything was here"));
  phase_ = phase::adopted;
  return {{does::send_adopted}};
}

actions receive_session::tick(time_point now) {
  switch (phase_) {
  case phase::reserved:
    if (!opened_ || now - progress_ < timeout_ / queued_per_timeout) return {};
    progress_ = now;
    return {{does::send_queued}};
  case phase::sending:
    return late(now, under_way_ > 0 || end_seen_, "a piece of KV to arrive");
  case phase::received:
    return late(now, true, "the engine to adopt the KV");
  default:
    return {};
  }
}

}  // namespace troupe::transfer
