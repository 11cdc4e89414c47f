#pragma once

#include "gpu/engine/types.hpp"
#include "messages/completion.capnp.h"

namespace troupe::text {

/// msg::OutputPlan on the wire and back.
void write(msg::OutputPlan::Builder out, const engine::output_plan& plan);
engine::output_plan read(msg::OutputPlan::Reader in);

}  // namespace troupe::text
