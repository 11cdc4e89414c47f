#include "apps/bench/recorder.hpp"

#include <algorithm>

namespace troupe::bench {

namespace {

std::uint64_t positive(nanoseconds t) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, t.count()));
}

}  // namespace

void recorder::record(nanoseconds intended, const outcome& o) {
  if (!counts(intended)) return;
  first_intended_ = std::min(first_intended_, intended);
  last_end_ = std::max(last_end_, intended + o.end);
  completion_tokens += o.tokens();
  prompt_tokens += o.prompt_tokens.value_or(0);
  cached_tokens += o.cached_tokens;
  send_delay.record(positive(o.sent));
  if (!o.error.empty()) {
    ++failed;
    auto& e = errors[o.error];
    if (++e.count == 1) e.first_message = o.message;
    return;
  }
  ++whole;
  whole_answer.record(positive(o.end));
  if (!o.first_token) return;
  first_token.record(positive(*o.first_token));
  if (o.tokens() > 1) per_token.record(positive(o.last_token - *o.first_token) / (o.tokens() - 1));
}

}  // namespace troupe::bench
