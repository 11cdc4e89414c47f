#pragma once

#include "messages/base/expected.hpp"

class common_json;

namespace troupe::gguf {

/// Whether llama.cpp converts a schema in little time, memory and stack, and whether what comes of
/// it can be matched so: by the limits in `schema_check.hpp`, of what the conversion reaches. The
/// schema's nesting is known to be bounded. Errors: `invalid_schema`, naming the place.
expected<void> check_work(const common_json& root);

}  // namespace troupe::gguf
