#pragma once

// An actor system without threads, sockets or a wall clock: a test runs messages and moves time
// itself. Not CAF's own fixture, which needs CAF's test engine.

#include "actors/link/post_office.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// What an actor under test said, in order.
struct captured {
  caf::message content;
  caf::strong_actor_ptr sender;
};

class deterministic_config : public caf::actor_system_config {
 public:
  deterministic_config() {
    add_message_types<caf::id_block::troupe_messages>();
    add_message_types<caf::id_block::troupe_link>();
    set("scheduler.policy", caf::atom("testing"));
  }
};

/// A fixture: derive a test case's fixture from it, or hold one.
///
/// Nothing runs until `run()`. Actors see time by `self->clock()` only; it starts away from zero
/// and moves by `advance`. Actors that are alive at the end get a kill.
class deterministic_system {
 public:
  explicit deterministic_system(std::chrono::milliseconds start = std::chrono::hours{1})
      : system(config),
        scheduler(dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler())) {
    scheduler.advance_time(start);
  }
  ~deterministic_system() {
    for (auto& a : owned_) caf::anon_send_exit(a, caf::exit_reason::kill);
    owned_.clear();
    run();
    for (auto& [actor, messages] : captures_) caf::anon_send_exit(actor, caf::exit_reason::kill);
    captures_.clear();
    run();
    system.await_actors_before_shutdown(false);
  }
  deterministic_system(const deterministic_system&) = delete;
  deterministic_system& operator=(const deterministic_system&) = delete;

  /// Handles messages until there are none. Timers don't fire.
  void run() { scheduler.run(); }

  /// Moves the clock in steps of `step`, firing timers that are due and handling all messages after
  /// each.
  void advance(std::chrono::milliseconds by,
               std::chrono::milliseconds step = std::chrono::milliseconds{50}) {
    run();
    for (auto left = by; left.count() > 0;) {
      const auto now = std::min(left, step);
      scheduler.advance_time(now);
      run();
      left -= now;
    }
  }

  std::chrono::steady_clock::time_point now() {
    return std::chrono::steady_clock::time_point{scheduler.clock().now().time_since_epoch()};
  }

  /// Kills it when the fixture ends, so that nothing of a test outlives it.
  caf::actor own(caf::actor a) {
    owned_.push_back(a);
    return a;
  }

  /// An actor that keeps all that it gets; read it with `take`.
  caf::actor capture() {
    auto messages = std::make_shared<std::vector<captured>>();
    // The state is an argument: for a function without one CAF dereferences a null pointer, which
    // UBSan reports.
    auto actor = system.spawn(
        [](caf::event_based_actor* self,
           const std::shared_ptr<std::vector<captured>>& kept) -> caf::behavior {
          self->set_default_handler(
              [kept](caf::scheduled_actor* me, caf::message_view& x) -> caf::result<caf::message> {
                kept->push_back({x.move_content_to_message(), me->current_sender()});
                return caf::message{};
              });
          self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
          return {[](const never&) {}};
        },
        messages);
    run();
    captures_.emplace_back(actor, std::move(messages));
    return actor;
  }

  /// The messages of one type that a capture got (envelopes come as `(origin, envelope)`: see
  /// `take_envelopes`); removes them.
  template <class T>
  std::vector<T> take(const caf::actor& who) {
    std::vector<T> found;
    auto& all = messages_of(who);
    for (auto i = all.begin(); i != all.end();) {
      if (i->content.size() == 1 && i->content.template match_element<T>(0)) {
        found.push_back(i->content.template get_as<T>(0));
        i = all.erase(i);
      } else {
        ++i;
      }
    }
    return found;
  }

  /// The envelopes of one schema that a capture got through a post office; removes them.
  template <class Schema>
  std::vector<std::pair<link::origin, msg::envelope<Schema>>> take_envelopes(
      const caf::actor& who) {
    std::vector<std::pair<link::origin, msg::envelope<Schema>>> found;
    auto& all = messages_of(who);
    for (auto i = all.begin(); i != all.end();) {
      if (i->content.size() == 2 && i->content.template match_element<link::origin>(0) &&
          i->content.template match_element<msg::envelope<Schema>>(1)) {
        found.emplace_back(i->content.template get_as<link::origin>(0),
                           i->content.template get_as<msg::envelope<Schema>>(1));
        i = all.erase(i);
      } else {
        ++i;
      }
    }
    return found;
  }

  /// Messages that a capture got and nobody took.
  std::size_t pending(const caf::actor& who) { return messages_of(who).size(); }

 private:
  struct never {};
  std::vector<captured>& messages_of(const caf::actor& who) {
    for (auto& [actor, messages] : captures_)
      if (actor == who) return *messages;
    throw std::invalid_argument("not a capture of this system");
  }

  deterministic_config config;

 public:
  caf::actor_system system;
  caf::scheduler::test_coordinator& scheduler;

 private:
  std::vector<caf::actor> owned_;
  std::vector<std::pair<caf::actor, std::shared_ptr<std::vector<captured>>>> captures_;
};

}  // namespace troupe::test
