#include "tools/bench/router/trace_fleet.hpp"

#include <algorithm>
#include <utility>

namespace troupe::bench {

namespace {

constexpr std::uint32_t block_tokens = 512, blocks_of_chain = 4;

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E37'79B9'7F4A'7C15ULL;
  x = (x ^ x >> 30U) * 0xBF58'476D'1CE4'E5B9ULL;
  x = (x ^ x >> 27U) * 0x94D0'49BB'1331'11EBULL;
  return x ^ x >> 31U;
}

}  // namespace

std::vector<std::uint64_t> chain_of(const trace_request& r) {
  std::vector<std::uint64_t> c;
  const std::size_t whole = r.input * 4ULL / 512;
  for (std::uint64_t b : r.blocks)
    for (std::uint64_t i = 0; i < blocks_of_chain && c.size() < whole; ++i)
      c.push_back(mix(b * blocks_of_chain + i));
  return c;
}

void sim_worker::tell(std::uint32_t block, std::vector<std::uint64_t>& to) const {
  for (std::uint64_t i = 0; i < blocks_of_chain; ++i)
    to.push_back(mix(std::uint64_t{block} * blocks_of_chain + i));
}

std::uint32_t sim_worker::cached(const trace_request& r) const {
  std::uint32_t n = 0;
  while (n < r.blocks.size() && cache_.contains(r.blocks[n])) ++n;
  return std::min(n * block_tokens, r.input - 1);  // the last token is always computed
}

void sim_worker::keep(const trace_request& r) {
  // A block at the end that is not full would not be found by another prompt.
  const auto whole = std::min<std::size_t>(r.blocks.size(), r.input / block_tokens);
  for (auto i = whole; i-- > 0;) {
    const auto b = r.blocks[i];
    if (const auto known = cache_.find(b); known != cache_.end()) {
      recent_.splice(recent_.begin(), recent_, known->second);
      continue;
    }
    recent_.push_front(b);
    cache_[b] = recent_.begin();
    tell(b, added_);
  }
  while (cache_.size() > blocks_max_) {
    tell(recent_.back(), dropped_);
    cache_.erase(recent_.back());
    recent_.pop_back();
  }
}

void sim_worker::run(double now, double seconds, const std::function<void(std::uint64_t)>& done) {
  double decode = 0;
  for (const auto& j : decoding_)
    decode += costs_->decode_seconds(j.what->input, j.what->output, costs_->about().usual_batch) /
              (j.what->output * token_seconds);
  decode = std::min(decode, 1 - prefill_share_min);
  busy_ += decode * seconds;
  sampled_ += static_cast<double>(decoding_.size()) * seconds / token_seconds;
  double left = (1 - decode) * seconds;
  while (!waiting_.empty() && left > 0) {
    auto& j = waiting_.front();
    if (!std::exchange(begun_, true)) {
      const auto hit = cached(*j.what);
      hit_tokens_ += hit;
      prompt_tokens_ += j.what->input;
      j.left = j.whole = costs_->prefill_seconds(j.what->input, hit);
      j.missed = j.what->input - hit;
    }
    const auto step = std::min(left, j.left);
    j.left -= step;
    prefilled_ += step / j.whole * j.missed;
    left -= step;
    busy_ += step;
    if (j.left > 0) break;
    keep(*j.what);
    ttfts_.push_back(now - static_cast<double>(j.what->at_ms) / 1e3);
    j.end = now + j.what->output * token_seconds;
    decoding_.push_back(j);
    waiting_.pop_front();
    begun_ = false;
  }
  std::erase_if(decoding_, [&](const job& j) {
    if (j.end > now) return false;
    done(j.tag);
    return true;
  });
}

router::worker_report sim_worker::report() const {
  router::worker_report r;
  r.running = static_cast<std::uint32_t>(decoding_.size()) + (begun_ ? 1 : 0);
  r.queued = static_cast<std::uint32_t>(waiting_.size()) - (begun_ ? 1 : 0);
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const auto& j = waiting_[i];
    // As an engine does: it looks into its cache when a prompt's turn comes, and counts all of it
    // until then.
    r.queued_tokens += i == 0 && begun_
                           ? static_cast<std::uint64_t>(j.left / costs_->in_seconds().alpha)
                           : j.what->input;
  }
  r.bytes_per_token = 4;
  r.prefilled_tokens = static_cast<std::uint64_t>(prefilled_);
  r.sampled_tokens = static_cast<std::uint64_t>(sampled_);
  return r;
}

void sim_worker::take_events(std::vector<std::uint64_t>& added,
                             std::vector<std::uint64_t>& dropped) {
  added = std::exchange(added_, {});
  dropped = std::exchange(dropped_, {});
}

}  // namespace troupe::bench
