#include "actors/router/router_policy.hpp"

#include <algorithm>

// What a shard takes a worker's load to be.

namespace troupe::router {

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

void router_policy::share::take_from(worker& w, bool quarantine) const {
  w.leased_tokens -= tokens;
  --w.leases;
  if (quarantine) --w.quarantined;
  w.prefill_us -= prefill_us;
  w.decode_us -= decode_us;
  w.kv_tokens -= kv_tokens;
  if (interval == w.interval)
    w.since_us[0] -= prefill_us;
  else if (interval + 1 == w.interval)
    w.since_us[1] -= prefill_us;
}

/// The report knows of everything that had arrived, whichever shard sent it, and of what was
/// computed since. What was granted shortly before may have been on its way: the larger of both
/// counts. What was granted since comes on top.
std::optional<double> router_policy::known_queue(const worker& w, time_point now) const {
  if (!w.reported || now - w.reported_at > report_stale_after) return {};
  return std::max(w.reported_queue, static_cast<double>(w.since_us[1]) / 1e6) +
         static_cast<double>(w.since_us[0]) / 1e6 * limits_.shards;
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
