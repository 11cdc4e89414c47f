#pragma once

#include "messages/job.capnp.h"

namespace troupe::msg {

/// OpenAI's name of a reason; null for none yet.
inline const char* finish_name(FinishReason reason) {
  switch (reason) {
  case FinishReason::STOP:
    return "stop";
  case FinishReason::LENGTH:
    return "length";
  case FinishReason::TOOL_CALLS:
    return "tool_calls";
  case FinishReason::NONE:
    break;
  }
  return nullptr;
}

}  // namespace troupe::msg
