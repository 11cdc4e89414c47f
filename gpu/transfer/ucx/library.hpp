#pragma once

#include "messages/base/expected.hpp"

#include <ucs/type/status.h>

#include <string_view>

namespace troupe::transfer::ucx {

/// Makes the UCX library behave in a server: no signal handlers of its own (they would swallow
/// crashes and print backtraces of prompts' memory), nothing on standard output but errors. Once
/// per process, before whoever wants those signals and before the first context; idempotent and
/// thread-safe.
void prepare_library();

/// What UCX said, as an error of ours: `peer_failed`, `cancelled`, `truncated`, `peer_unreachable`
/// or `transport_failed`.
error to_error(ucs_status_t status, std::string_view what);

}  // namespace troupe::transfer::ucx
