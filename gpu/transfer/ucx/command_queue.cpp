#include "gpu/transfer/ucx/command_queue.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace troupe::transfer::ucx {

command_queue::command_queue() : wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

command_queue::~command_queue() { ::close(wake_fd_); }

void command_queue::post(command work) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  any_.store(true, std::memory_order_seq_cst);
  // Sequentially consistent with `prepare_sleep`: one of the two sees the other.
  if (sleeping_.load(std::memory_order_seq_cst)) wake();
}

bool command_queue::run() {
  if (!any_.exchange(false, std::memory_order_seq_cst)) return false;
  {
    std::lock_guard lock(mutex_);
    running_.swap(posted_);
  }
  for (auto& work : running_) work();
  running_.clear();
  return true;
}

bool command_queue::prepare_sleep() {
  sleeping_.store(true, std::memory_order_seq_cst);
  if (!any_.load(std::memory_order_seq_cst)) return true;
  sleeping_.store(false, std::memory_order_relaxed);
  return false;
}

void command_queue::awake() {
  sleeping_.store(false, std::memory_order_relaxed);
  std::uint64_t count = 0;
  [[maybe_unused]] auto n = ::read(wake_fd_, &count, sizeof count);
}

void command_queue::wake() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the sleeper is woken already.
  [[maybe_unused]] auto n = ::write(wake_fd_, &one, sizeof one);
}

}  // namespace troupe::transfer::ucx
