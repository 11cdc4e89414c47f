#pragma once

#include "actors/request/submission.hpp"

#include <cstdint>

namespace troupe::request {

/// What makes two prompts the same for the engine that computes them: their whole content, sampling
/// included, but for the seed, which the gateway draws where the client gives none. As expensive as
/// a copy of the prompt.
std::uint64_t fingerprint(const prompt_content& content);

}  // namespace troupe::request
