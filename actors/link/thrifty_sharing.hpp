#pragma once

#include "messages/base/exit_codes.hpp"

#include <caf/policy/unprofiled.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>

namespace troupe::link {

/// A scheduler's policy (CAF's concept): one queue for all workers, as CAF's `work_sharing`, but a
/// worker that makes others runnable wakes nobody as long as it will get to them itself within a
/// few turns. Waking a thread costs as much as several turns of actors that decide and forward, and
/// a chain of them (hub, router, hub, request, link) would wander from thread to thread.
///
/// What another thread makes runnable (a socket, a timer) always wakes a worker that sleeps, and
/// whoever takes a turn wakes the next while more are waiting than it is to run itself. So a turn
/// that takes long holds up at most `turns_ahead` others, until it ends or an actor that was idle
/// gets a message from outside. Turns must be short, also where many messages wait: the system
/// bounds them (`turn_messages_max`).
class thrifty_sharing : public caf::policy::unprofiled {
 public:
  /// Turns that wait for the running one rather than wake somebody.
  static constexpr std::size_t turns_ahead = 4;

  struct coordinator_data {
    /// `of`: null in tests of the policy alone.
    explicit coordinator_data(caf::scheduler::abstract_coordinator* of) : stopped(of == nullptr) {}
    /// When a further worker could not be started, the others are not stopped: they sleep on, or
    /// are about to, and to destroy what they wait for would wait for them.
    ~coordinator_data() {
      if (stopped) return;
      std::fputs("troupe: the system does not give this process the threads or the memory that it "
                 "needs; look at its limits (TasksMax and MemoryMax in systemd, ulimit)\n",
                 stderr);
      std::_Exit(exit_internal);
    }
    std::mutex mutex;
    /// Shared by whoever is about to wake somebody, and so may outlive this.
    const std::shared_ptr<std::condition_variable> woken =
        std::make_shared<std::condition_variable>();
    std::deque<caf::resumable*> queue;
    std::size_t asleep = 0;
    bool stopped;  ///< its workers have ended
  };
  struct worker_data {
    explicit worker_data(caf::scheduler::abstract_coordinator*) {}
  };

  template <class Coordinator>
  void central_enqueue(Coordinator* self, caf::resumable* job) {
    put(d(self), job);
  }
  template <class Worker>
  void external_enqueue(Worker* self, caf::resumable* job) {
    put(d(self->parent()), job);
  }
  template <class Worker>
  void internal_enqueue(Worker* self, caf::resumable* job) {
    put(d(self->parent()), job);
  }
  template <class Worker>
  void resume_job_later(Worker* self, caf::resumable* job) {
    internal_enqueue(self, job);
  }

  template <class Worker>
  caf::resumable* dequeue(Worker* self) {
    auto& all = d(self->parent());
    works_for = &all;
    std::unique_lock lock{all.mutex};
    while (all.queue.empty()) {
      ++all.asleep;
      all.woken->wait(lock);
      --all.asleep;
    }
    auto* job = all.queue.front();
    all.queue.pop_front();
    wake_beyond(turns_ahead, all, lock);
    return job;
  }

  template <class Worker, class Use>
  void foreach_resumable(Worker*, Use) {}
  template <class Coordinator, class Use>
  void foreach_central_resumable(Coordinator* self, Use use) {
    auto& all = d(self);
    all.stopped = true;  // CAF comes here when it has joined the workers
    // Whoever is told of its end may send in its last moment, and so come here.
    for (;;) {
      std::unique_lock lock{all.mutex};
      if (all.queue.empty()) return;
      auto* job = all.queue.front();
      all.queue.pop_front();
      lock.unlock();
      use(job);
    }
  }

 private:
  /// Of whom this thread is a worker. CAF's own word for it, whether it names the worker, is not
  /// enough: what is sent in nobody's name (`anon_send`) names none.
  static inline thread_local const coordinator_data* works_for = nullptr;

  static void put(coordinator_data& all, caf::resumable* job) {
    std::unique_lock lock{all.mutex};
    all.queue.push_back(job);
    if (works_for == &all) return wake_beyond(turns_ahead, all, lock);
    if (all.asleep == 0) return;
    // Once a worker has the job, the system may end before this thread goes on.
    const auto woken = all.woken;
    lock.unlock();
    woken->notify_one();
  }

  /// Not under the lock, which whoever wakes needs first: it would go to sleep again at once.
  static void wake_beyond(std::size_t may_wait, coordinator_data& all,
                          std::unique_lock<std::mutex>& lock) {
    const bool wake = all.asleep > 0 && all.queue.size() > may_wait;
    lock.unlock();
    if (wake) all.woken->notify_one();
  }
};

}  // namespace troupe::link
