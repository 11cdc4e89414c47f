#include "actors/request/attempt_policy.hpp"

#include "messages/job_codes.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe::request {

using names = std::vector<std::string>;

bool is_transfer_failure(const std::string& code) {
  // Those of the hand-over's protocol, of its wire, and of the transports.
  static constexpr std::array<std::string_view, 21> codes = {
      "hand_over_protocol", "kv_layout_mismatch",  "piece_too_large",       "prefix_mismatch",
      "transfer_timeout",   "too_many_hand_overs", "unknown_job",           "wrong_token",
      "message_malformed",  "unknown_message",     "peer_failed",           "peer_left",
      "peer_unreachable",   "transport_failed",    "transport_unavailable", "unsupported_memory",
      "control_too_large",  "control_backlog",     "registration_failed",   "out_of_memory",
      "no_transfer_buffer",
  };
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

namespace {

std::chrono::milliseconds grown_pause(std::uint32_t times) {
  return route_retry_pause * (1U << std::min(times, route_retry_doublings_max));
}

attempt_decision by_cause(const ended_attempt& e) {
  switch (e.how) {
  case attempt_end::router_silent:
    return {true, route_retry_pause, {}};
  case attempt_end::route_refused:
    // A stream that the client has begun to read waits for a worker; a new request is told at once,
    // unless the shards are the ones who do not see what there is: they have just begun, or their
    // links have.
    if (e.why.http_status != 503 || e.hopeless >= hopeless_max) return {};
    if (!e.client_reads && !e.seen_here) return {};
    return {true, grown_pause(e.number), {}};
  case attempt_end::quarantine_full:
    return {true, quarantine_retry_pause, {}};
  case attempt_end::shard_refused:
  case attempt_end::under_suspicion:
    return {true, {}, {}};
  case attempt_end::worker_unknown:
    // It may be back, as a younger one, before this node hears of it. Or the router's host reaches
    // it while this one does not: it would be chosen until the attempts are used up.
    return {true, route_retry_pause, e.worker.empty() ? names{} : names{e.worker}};
  case attempt_end::job_ended:
    if (!e.retryable) return {};
    // The first message of two wins. If only its worker were avoided, one that breaks all its
    // transfers could have each of its peers excluded and be chosen again with the next. So could a
    // prefill worker whose KV is of no use.
    if (!e.prefill.empty() && (is_transfer_failure(e.why.code) ||
                               (msg::is_engine_fault(e.why.code) && e.worker == e.decode)))
      return {true, {}, {e.prefill, e.decode}};
    break;
  case attempt_end::worker_gone:
  case attempt_end::stream_broken:
    break;
  }
  if (e.worker.empty()) return {true, {}, {}};
  return {true, {}, {e.worker}};
}

}  // namespace

bool is_counted(attempt_end how) {
  return how != attempt_end::quarantine_full && how != attempt_end::under_suspicion &&
         how != attempt_end::shard_refused;
}

bool is_repetition(attempt_end how) {
  return is_counted(how) && how != attempt_end::router_silent && how != attempt_end::route_refused;
}

attempt_decision decide(const ended_attempt& e) {
  const bool last = is_counted(e.how) && e.number >= attempts_max;
  if (last && !e.client_reads) return {};
  auto d = by_cause(e);
  // What it fails for hasn't got about yet: attempts are used up sooner than that.
  if (e.avoided && d.again) d.pause = std::max(d.pause, route_retry_pause);
  if (last && d.again) d.pause = std::max(d.pause, grown_pause(e.number - attempts_max));
  return d;
}

}  // namespace troupe::request
