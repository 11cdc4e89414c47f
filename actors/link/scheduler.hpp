#pragma once

#include "actors/link/thrifty_sharing.hpp"

#include <caf/detail/set_thread_name.hpp>
#include <caf/detail/thread_safe_actor_clock.hpp>
#include <caf/scheduler/coordinator.hpp>

#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_set>

namespace troupe::link {

/// CAF's clock, but for one thing: each actor that ends has its timeouts taken back, for which
/// CAF's wakes the clock's thread whether there are any or not. Most actors here live for one
/// request and have none: what is timed for them is timed by their parent.
class thrifty_clock final : public caf::detail::thread_safe_actor_clock {
 public:
  using super = caf::detail::thread_safe_actor_clock;

  void set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                            std::uint64_t id) override {
    note(self);
    super::set_ordinary_timeout(t, self, type, id);
  }
  void set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) override {
    note(self);
    super::set_request_timeout(t, self, id);
  }
  void set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                         std::uint64_t id) override {
    note(self);
    super::set_multi_timeout(t, self, type, id);
  }
  void cancel_timeouts(caf::abstract_actor* self) override {
    if (forget(self)) super::cancel_timeouts(self);
  }

 private:
  void note(caf::abstract_actor* self) {
    const std::lock_guard lock{mutex_};
    timed_.insert(self);
  }
  bool forget(caf::abstract_actor* self) {
    const std::lock_guard lock{mutex_};
    return timed_.erase(self) > 0;
  }

  std::mutex mutex_;
  /// Those that have set a timeout, until they end: so none of another life with the same address.
  std::unordered_set<caf::abstract_actor*> timed_;
};

/// CAF's scheduler with the project's policy and clock.
class scheduler final : public caf::scheduler::coordinator<thrifty_sharing> {
 public:
  using super = caf::scheduler::coordinator<thrifty_sharing>;
  using super::super;

  caf::detail::thread_safe_actor_clock& clock() noexcept override { return clock_; }

 protected:
  void start() override {
    thread_ = std::thread{[this] {
      caf::detail::set_thread_name("clock");
      system().thread_started();
      clock_.run_dispatch_loop();
      system().thread_terminates();
    }};
    try {
      super::start();
    } catch (...) {  // too few threads: said by whoever catches it
      end_clock();
      throw;
    }
  }
  void stop() override {
    super::stop();
    end_clock();
  }

 private:
  void end_clock() {
    clock_.cancel_dispatch_loop();
    thread_.join();
  }

  thrifty_clock clock_;
  std::thread thread_;
};

}  // namespace troupe::link
