#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe::workers {

/// Tasks that wait for a tokeniser thread; above it `post` refuses and the job is rejected as
/// retryable.
inline constexpr std::size_t offloaded_tasks_max = 1'024;

/// A few threads for what takes too long for an actor: rendering and tokenising. Thread-safe.
/// Destroying it drops what waits and joins what runs.
class offload_pool {
 public:
  explicit offload_pool(std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~offload_pool() {
    {
      std::lock_guard lock{mutex_};
      stopping_ = true;
      tasks_.clear();
    }
    changed_.notify_all();
    for (auto& t : threads_) t.join();
  }
  offload_pool(const offload_pool&) = delete;
  offload_pool& operator=(const offload_pool&) = delete;

  /// False when too many wait.
  bool post(std::function<void()> task) {
    {
      std::lock_guard lock{mutex_};
      if (tasks_.size() >= offloaded_tasks_max) return false;
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troupe::workers
