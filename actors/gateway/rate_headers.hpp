#pragma once

#include "actors/gateway/http/responder.hpp"
#include "actors/request/submission.hpp"

#include <chrono>
#include <string>

namespace troupe::gateway {

/// Where a tenant stands, in the headers that OpenAI's clients know:
///
/// | header | of model units (MU) |
/// |---|---|
/// | `x-ratelimit-limit-requests`, `-tokens` | guaranteed in a minute |
/// | `x-ratelimit-remaining-requests`, `-tokens` | that can be begun at once |
/// | `x-ratelimit-reset-requests`, `-tokens` | until all that can be saved up is there again |
/// | `x-ratelimit-limit-mu`, `-remaining-mu`, `-reset-mu` | the same, exactly |
///
/// A request is taken for 1 MU, and 1 MU for the tokens of the request that defines it: 3,500 in
/// and 300 out. Whole numbers, rounded down.
http::header_list rate_headers(const request::rate_standing& at);

/// As OpenAI writes it: `250ms`, `1.5s`, `6m0s`, `1h0m0s`.
std::string reset_text(std::chrono::milliseconds t);

}  // namespace troupe::gateway
