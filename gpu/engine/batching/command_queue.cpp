#include "gpu/engine/batching/command_queue.hpp"

#include <utility>

namespace troupe::engine {

void command_queue::push(command c) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto* cancel = std::get_if<cancel_command>(&c)) {
      cancelled_.insert(cancel->id);
      if (computing_) abort_if_worth_it();
    }
    commands_.push_back(std::move(c));
    woken_ = true;
  }
  changed_.notify_one();
}

std::vector<command> command_queue::take_all() {
  const std::lock_guard lock(mutex_);
  cancelled_.clear();
  woken_ = false;
  return std::exchange(commands_, {});
}

void command_queue::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [this] { return woken_; });
  woken_ = false;
}

void command_queue::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

void command_queue::pass_begins(std::unordered_map<job_id, std::uint32_t> tokens) {
  const std::lock_guard lock(mutex_);
  pass_ = std::move(tokens);
  computing_ = true;
  abort_if_worth_it();
}

void command_queue::pass_ended() {
  const std::lock_guard lock(mutex_);
  computing_ = false;
}

void command_queue::abort_if_worth_it() {
  if (cancelled_.empty()) return;
  std::uint64_t all = 0;
  std::uint64_t lost = 0;
  for (const auto& [id, tokens] : pass_) {
    all += tokens;
    if (cancelled_.contains(id)) lost += tokens;
  }
  if (lost > 0 && static_cast<double>(lost) >= abort_share * static_cast<double>(all))
    runner_.request_abort();
}

}  // namespace troupe::engine
