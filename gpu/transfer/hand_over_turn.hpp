#pragma once

// Inside of hand_over_service: how its driver is entered.

#include "gpu/transfer/hand_over_driver.hpp"

#include <chrono>
#include <mutex>
#include <utility>

namespace troupe::transfer {

inline std::chrono::microseconds time_between(time_point a, time_point b) {
  return std::chrono::duration_cast<std::chrono::microseconds>(b - a);
}

/// Holds the lock; on its way out it delivers callbacks, in order, and destroys buffers, both
/// without the lock.
class hand_over_service::driver::turn {
 public:
  explicit turn(driver& d) : driver_(d), lock_(d.mutex_) {}
  ~turn() {
    auto trash = std::exchange(driver_.trash_, {});
    const bool first = !std::exchange(driver_.delivering_, true);
    // Another turn, here or on another thread, is delivering already: it also delivers ours, which
    // keeps the order.
    while (first && !driver_.callbacks_.empty()) {
      auto next = std::move(driver_.callbacks_.front());
      driver_.callbacks_.pop_front();
      lock_.unlock();
      next();
      next = nullptr;
      lock_.lock();
    }
    if (first) driver_.delivering_ = false;
    lock_.unlock();
    trash.clear();
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

 private:
  driver& driver_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace troupe::transfer
