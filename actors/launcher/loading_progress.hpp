#pragma once

#include "messages/directory.capnp.h"

#include <cstdint>

namespace troupe::launcher {

/// How far one start of an engine has come, by its own word. Pure.
///
/// An engine says each second that it is loading, also while its loader is stuck: such a word shows
/// that the process lives, not that it gets on. Only a new state, or more done than ever before,
/// counts.
class loading_progress {
 public:
  /// `done`: 0 to 1.
  void told(msg::EntryState state, float done) {
    if (state != state_ || done > done_) ++steps_;
    state_ = state;
    if (done > done_) done_ = done;
    over_ = over_ || state == msg::EntryState::READY;
  }
  /// Grows with each sign of progress.
  std::uint64_t steps() const { return steps_; }
  /// It has been ready.
  bool over() const { return over_; }

 private:
  msg::EntryState state_ = msg::EntryState::STARTING;
  float done_ = 0;
  std::uint64_t steps_ = 0;
  bool over_ = false;
};

}  // namespace troupe::launcher
