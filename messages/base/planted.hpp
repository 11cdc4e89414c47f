#pragma once

#include <cstdint>

namespace troupe::planted {

/// Bugs that `troupe sim chaos --planted` puts in, to prove that its checkers find them. Nothing
/// else sets one: in production the question costs a comparison with a constant in memory.
enum class bug : std::uint8_t {
  none,
  leak_lease,          ///< a routing lease isn't given back
  leak_ticket,         ///< a request's place isn't given back
  leak_job,            ///< a worker keeps a job that has ended
  keep_early_open,     ///< a hand-over whose job never comes is kept
  leak_buffer,         ///< a transport buffer isn't given back
  leak_kv,             ///< a job that ends keeps its KV
  free_used_kv,        ///< KV is freed in the engine that the ledger counts on
  adopt_early,         ///< KV is adopted before all of it has come, and again
  skip_attempt_check,  ///< what belongs to an earlier attempt has an effect
  drop_down,           ///< a supervisor doesn't see a child's end
  forget_gone,         ///< the hub doesn't see a worker's end
  forget_renewal,      ///< leases of jobs aren't renewed
  forget_deadline,     ///< nobody tells a request that its time is over
  lose_last_batch,     ///< a stream's last tokens aren't sent
  duplicate_token,     ///< tokens are sent twice, and given to the client twice
  answer_twice,        ///< a client is told its end twice
  kill_progressing,    ///< the watchdog doesn't see progress
  no_restart_limit,    ///< whoever ends too often is restarted all the same
  forget_stall,        ///< an engine forgets jobs that it has, and its worker doesn't see it
  keep_assignment,     ///< a node that goes by an assignment takes no newer one over
  forget_job,          ///< an engine forgets jobs that it has: no checker's, since it is mended
};
inline constexpr std::uint8_t bugs = 22;

/// The one that is in; set before any actor runs.
inline bug present = bug::none;
inline bool is(bug b) { return present == b; }

}  // namespace troupe::planted
