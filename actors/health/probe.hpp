#pragma once

#include "messages/envelope.hpp"
#include "messages/job.capnp.h"
#include "messages/job_key.hpp"

#include <chrono>
#include <string>

namespace troupe::health {

/// A request of one token that a worker computes all by itself, whatever its role: what a probe
/// asks. No lease but its own time.
msg::envelope<msg::DecodeJob> make_probe(const msg::job_key& key, const std::string& reply_to,
                                         std::chrono::milliseconds within);

}  // namespace troupe::health
