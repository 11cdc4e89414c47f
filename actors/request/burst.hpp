#pragma once

#include <caf/all.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::request {

/// Messages to many actors that do little with each. Those that had nothing to do run here, one
/// after another, when all have their message: handing each to the scheduler would wake a thread
/// for a few microseconds' work, again and again. Of a crowd the scheduler's other threads have
/// their part. Lives within one turn of its actor.
class burst {
 public:
  /// `here_max`: actors that one turn runs itself. 64 are a quarter of a millisecond, if each
  /// handles a token.
  burst(caf::event_based_actor* self, std::size_t here_max) : self_(self), here_max_(here_max) {}
  burst(const burst&) = delete;
  burst& operator=(const burst&) = delete;
  /// Who was not run is left to the scheduler.
  ~burst() {
    for (auto* x : woken_.actors) self_->context()->exec_later(x);
  }

  template <class T>
  void send(const caf::actor& to, T&& what) {
    caf::actor_cast<caf::abstract_actor*>(to)->enqueue(
        caf::make_mailbox_element(nullptr, caf::make_message_id(), caf::no_stages,
                                  std::forward<T>(what)),
        &woken_);
  }

  void run() {
    auto here = std::exchange(woken_.actors, {});
    // First, so that others begin meanwhile.
    for (auto i = here_max_; i < here.size(); ++i) self_->context()->exec_later(here[i]);
    here.resize(std::min(here.size(), here_max_));
    // What they wake is the scheduler's, too.
    for (auto* x : here) switch (x->resume(self_->context(), turn_max)) {
      case caf::resumable::resume_later:
        self_->context()->exec_later(x);
        break;
      default:
        caf::intrusive_ptr_release(x);
      }
  }

 private:
  /// Messages of one actor at a time; one that has more goes on at the scheduler.
  static constexpr std::size_t turn_max = 4;

  struct unit final : caf::execution_unit {
    void exec_later(caf::resumable* x) override { actors.push_back(x); }
    std::vector<caf::resumable*> actors;
  };

  caf::event_based_actor* self_;
  std::size_t here_max_;
  unit woken_;
};

}  // namespace troupe::request
