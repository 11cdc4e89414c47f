#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace troupe::request {

/// A turn that writes to many clients' outboxes wakes the threads that send them when it has
/// written to all: who is woken for the first one would compete with this turn for the rest, and
/// sleep and be woken again for each. Lives within a turn; on that thread only.
class joint_wake {
 public:
  joint_wake() : outer_(std::exchange(current_, this)) {}
  ~joint_wake() {
    current_ = outer_;
    for (const auto& wake : wakes_) wake();
  }
  joint_wake(const joint_wake&) = delete;
  joint_wake& operator=(const joint_wake&) = delete;

  /// Wakes at the end of this thread's turn; at once where that is none that writes to many.
  template <class Wake>
  static void at_end(Wake&& wake) {
    if (current_ == nullptr)
      wake();
    else
      current_->wakes_.emplace_back(std::forward<Wake>(wake));
  }

 private:
  static inline thread_local joint_wake* current_ = nullptr;
  joint_wake* const outer_;
  std::vector<std::function<void()>> wakes_;
};

}  // namespace troupe::request
