#pragma once

#include "actors/health/thread_watch.hpp"

#include <semaphore.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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
  explicit offload_pool(std::size_t threads);
  ~offload_pool();
  offload_pool(const offload_pool&) = delete;
  offload_pool& operator=(const offload_pool&) = delete;

  /// False when too many wait. Waits for none of the threads, whatever they do.
  bool post(std::function<void()> task);
  /// How the threads do. Waits for none of them.
  health::preparing_account account() const;

  /// From inside a task: a sign of progress. On a thread of no pool it does nothing.
  static void got_on();
  /// Likewise: so large is what the task works at, until its end.
  static void works_at(std::size_t bytes);

 private:
  struct worker;
  void run(worker& w);

  mutable std::mutex mutex_;
  /// One for each task. Not a condition variable: its notify may wait for a thread that it woke
  /// before, and that stands.
  ::sem_t posted_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::atomic<std::uint64_t> signs_{0};
  std::vector<std::unique_ptr<worker>> workers_;
};

}  // namespace troupe::workers
