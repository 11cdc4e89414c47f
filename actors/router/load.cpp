#include "actors/router/router_policy.hpp"

#include <algorithm>

// What a shard takes a worker's load to be.

namespace troupe::router {

namespace {

double seconds(std::uint64_t us) { return static_cast<double>(us) / 1e6; }

}  // namespace

void router_policy::share::put_on(worker& w, bool quarantine) {
  w.leased_tokens += tokens;
  ++w.leases;
  if (quarantine) ++w.quarantined;
  w.prefill_us += prefill_us;
  w.decode_us += decode_us;
  w.kv_tokens += kv_tokens;
  interval = w.interval;
  w.since_us[0] += prefill_us;
}

void router_policy::share::take_from(worker& w, bool quarantine) {
  prefilled(w);
  w.leased_tokens -= tokens;
  --w.leases;
  if (quarantine) --w.quarantined;
  w.decode_us -= decode_us;
  w.kv_tokens -= kv_tokens;
}

void router_policy::share::prefilled(worker& w) {
  w.prefill_us -= prefill_us;
  if (const auto age = w.interval - interval; age <= 1) w.since_us[age] -= prefill_us;
  prefill_us = 0;
}

/// The report knows of everything that had arrived, whichever shard sent it, and of what was
/// computed since. What was granted shortly before may have been on its way: the larger of both
/// counts.
void router_policy::set_queue(worker& w, double reported) {
  w.reported_rest = std::max(0.0, reported - seconds(w.since_us[1]));
  w.reported_others = std::max(0.0, w.reported_rest - seconds(w.older_us()));
}

/// This shard's own prompts until they are computed (of older ones no more than was reported:
/// whoever computes them may not say so), what others had there, as time works it off, and what
/// they will have granted since then.
std::optional<double> router_policy::known_queue(const worker& w, time_point now) const {
  if (!w.reported || now - w.reported_at > report_stale_after) return {};
  const auto passed = std::max(0.0, std::chrono::duration<double>(now - w.reported_at).count());
  return std::min(seconds(w.older_us()), w.reported_rest) +
         std::max(0.0, w.reported_others - passed * prefill_share_assumed) +
         seconds(w.since_us[1]) + seconds(w.since_us[0]) * limits_.shards;
}

double router_policy::pressure(const worker& w, const question& k) {
  const double decoding = static_cast<double>(w.decode_us) / 1e6 + w.other_streams * w.other_stream;
  double seconds = decoding * decode_weight;
  const auto streams = w.leases + w.other_streams;
  if (w.slots > 0 && streams >= w.slots) seconds += (streams - w.slots + 1) * decoding / streams;
  // What does not fit is waited for, or pre-empts somebody who is computed again.
  const auto wanted = std::max<std::uint64_t>(w.kv_tokens, w.kv_used) + k.prompt + k.answer;
  if (w.kv_total > 0 && wanted > w.kv_total)
    seconds += static_cast<double>(wanted - w.kv_total) * w.prefill_seconds;
  return seconds;
}

}  // namespace troupe::router
