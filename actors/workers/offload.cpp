#include "actors/workers/offload.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>

namespace troupe::workers {

namespace {

std::int64_t nanoseconds_of(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

/// One thread. What it is at is read by others at any time, also when it stands for ever: nothing
/// here is behind a lock.
struct offload_pool::worker {
  std::atomic<std::uint64_t>* signs = nullptr;  ///< the pool's
  std::atomic<std::uint64_t> sign{0};           ///< the task's last one; 0: it has none in hand
  std::atomic<std::int64_t> computed_at_sign_ns{0};
  std::atomic<std::uint64_t> bytes{0};        ///< that the task works at
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;  ///< its own; set before its first sign
  std::thread thread;

  static thread_local worker* mine;

  void give_sign() {
    computed_at_sign_ns = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    sign = ++*signs;
  }
};

thread_local offload_pool::worker* offload_pool::worker::mine = nullptr;

offload_pool::offload_pool(std::size_t threads) {
  if (::sem_init(&posted_, 0, 0) != 0)
    throw std::system_error(errno, std::generic_category(), "sem_init");
  for (std::size_t i = 0; i < threads; ++i) {
    auto& w = *workers_.emplace_back(std::make_unique<worker>());
    w.signs = &signs_;
    w.thread = std::thread{[this, &w] { run(w); }};
  }
}

offload_pool::~offload_pool() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    tasks_.clear();
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) ::sem_post(&posted_);
  for (auto& w : workers_) w->thread.join();
  ::sem_destroy(&posted_);
}

bool offload_pool::post(std::function<void()> task) {
  {
    std::lock_guard lock{mutex_};
    if (tasks_.size() >= offloaded_tasks_max) return false;
    tasks_.push_back(std::move(task));
  }
  ::sem_post(&posted_);
  return true;
}

health::preparing_account offload_pool::account() const {
  health::preparing_account is;
  {
    std::lock_guard lock{mutex_};
    is.waiting = static_cast<std::uint32_t>(tasks_.size());
  }
  is.sign = signs_;
  for (const auto& w : workers_) {
    const auto sign = w->sign.load();
    if (sign == 0) continue;
    const bool first = is.in_hand++ == 0;
    if (!first && sign > is.sign) continue;
    const auto computed = nanoseconds_of(w->clock) - w->computed_at_sign_ns;
    is.sign = sign;
    is.bytes = w->bytes;
    // A sign that it gives meanwhile makes this too little, never too much.
    is.computed = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::nanoseconds{std::max<std::int64_t>(computed, 0)});
  }
  return is;
}

void offload_pool::got_on() {
  if (worker::mine != nullptr) worker::mine->give_sign();
}

void offload_pool::works_at(std::size_t bytes) {
  if (worker::mine != nullptr) worker::mine->bytes = bytes;
}

void offload_pool::run(worker& w) {
  ::pthread_setname_np(::pthread_self(), "tokeniser");  // for whoever looks at a stuck process
  ::pthread_getcpuclockid(::pthread_self(), &w.clock);
  worker::mine = &w;
  while (true) {
    if (::sem_wait(&posted_) != 0) continue;  // a signal
    std::function<void()> task;
    {
      std::lock_guard lock{mutex_};
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      w.bytes = 0;
      w.give_sign();
    }
    task();
    task = {};  // what it holds goes before the task is over
    ++signs_;
    w.sign = 0;
  }
}

}  // namespace troupe::workers
