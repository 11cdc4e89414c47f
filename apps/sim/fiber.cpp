#include "apps/sim/fiber.hpp"

#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace troupe::sim {

namespace {

/// An engine's step sends messages from its stack, which goes deep in a debug build.
constexpr std::size_t stack_bytes = 512U << 10U;
/// Stacks that are kept for later fibers.
constexpr std::size_t spare_stacks_max = 64;

thread_local fiber* running = nullptr;
thread_local std::vector<std::unique_ptr<std::byte[]>> spare;

}  // namespace

struct fiber::stack {
  std::unique_ptr<std::byte[]> bytes;
  stack() {
    if (spare.empty()) {
      bytes.reset(new std::byte[stack_bytes]);  // not zeroed: pages come when they are touched
    } else {
      bytes = std::move(spare.back());
      spare.pop_back();
    }
  }
  ~stack() {
    if (spare.size() < spare_stacks_max) spare.push_back(std::move(bytes));
  }
  stack(const stack&) = delete;
  stack& operator=(const stack&) = delete;
};

fiber::fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique<stack>()) {
  if (::getcontext(&own_) != 0) throw std::runtime_error("no context for a fiber");
  own_.uc_stack.ss_sp = stack_->bytes.get();
  own_.uc_stack.ss_size = stack_bytes;
  own_.uc_link = nullptr;
  ::makecontext(&own_, &fiber::enter, 0);
}

fiber::~fiber() {
  if (ended_) return;
  unwinding_ = true;
  resume();
}

void fiber::enter() {
  auto* me = running;
  try {
    if (!me->unwinding_) me->body_();
  } catch (const unwound&) {
  }
  me->ended_ = true;
  running = nullptr;
  ::setcontext(&me->outside_);
}

void fiber::resume() {
  if (ended_) return;
  if (running != nullptr) throw std::logic_error("a fiber resumes another");
  running = this;
  ::swapcontext(&outside_, &own_);
}

void fiber::suspend() {
  auto* me = running;
  running = nullptr;
  ::swapcontext(&me->own_, &me->outside_);
  if (me->unwinding_) throw unwound{};
}

}  // namespace troupe::sim
