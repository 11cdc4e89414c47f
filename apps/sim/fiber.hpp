#pragma once

#include <functional>
#include <memory>

#include <ucontext.h>

namespace troupe::sim {

/// Stands for a thread: a function with a stack of its own that is left in the middle and gone on
/// with later, on one real thread and where the simulation says so.
///
/// Destroying one that has not ended unwinds it: `suspend` throws `unwound` inside, which the body
/// lets pass.
class fiber {
 public:
  struct unwound {};

  explicit fiber(std::function<void()> body);
  ~fiber();
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Runs it until it suspends itself or ends. Not from within a fiber.
  void resume();
  bool ended() const { return ended_; }
  /// Leaves the fiber that is running; returns when it is resumed. Throws `unwound`.
  static void suspend();

 private:
  struct stack;
  static void enter();

  std::function<void()> body_;
  std::unique_ptr<stack> stack_;
  ucontext_t own_{};
  ucontext_t outside_{};
  bool ended_ = false;
  bool unwinding_ = false;
};

}  // namespace troupe::sim
