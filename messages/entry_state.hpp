#pragma once

#include "messages/directory.capnp.h"

namespace troupe::msg {

/// What an actor in this state does, in words that can follow "is".
inline const char* state_name(EntryState state) {
  switch (state) {
  case EntryState::STARTING:
    return "starting";
  case EntryState::LOADING:
    return "loading its model";
  case EntryState::READY:
    return "ready";
  case EntryState::DRAINING:
    return "draining";
  case EntryState::FAILED:
    return "failed";
  case EntryState::STOPPED:
    return "stopped";
  case EntryState::UNKNOWN:
    break;
  }
  return "unknown";
}

}  // namespace troupe::msg
