#pragma once

#include "actors/workers/engine_host.hpp"
#include "messages/common.capnp.h"
#include "messages/envelope.hpp"
#include "messages/job.capnp.h"

#include <span>
#include <utility>
#include <vector>

namespace troupe::workers {

using routed_delta = std::pair<job_route, engine::choice_delta>;

/// The same deltas in the same order, but for what a choice says in several that say no more than
/// one could: that comes in one, at the place of the first. Pure.
std::vector<routed_delta> joined(std::vector<routed_delta> deltas);

/// Deltas for one node. What is too large for one message is cut in two; jobs of which a
/// single delta is too large are added to `left_out`. Pure.
std::vector<msg::envelope<msg::TokenBatch>> make_token_batches(
    const std::string& worker, std::uint64_t generation,
    std::span<const routed_delta* const> deltas, std::vector<engine::job_id>& left_out);

void write_failure(msg::Failure::Builder out, const error& why, int http_status, bool retryable);

}  // namespace troupe::workers
