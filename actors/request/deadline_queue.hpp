#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::request {

/// Deadlines of many, for one who keeps a single timer: a timer of each request's own would hold
/// what is left of the request until then, however early it ends. Pure.
template <class Key>
class deadline_queue {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// When to be woken, if a timer must be set for it.
  std::optional<time_point> add(const Key& id, time_point when) {
    if (auto known = when_.find(id); known != when_.end()) order_.erase({known->second, id});
    when_[id] = when;
    order_.insert({when, id});
    return next();
  }
  void remove(const Key& id) {
    auto i = when_.find(id);
    if (i == when_.end()) return;
    order_.erase({i->second, id});
    when_.erase(i);
  }
  /// Those whose time has come; they are forgotten.
  std::vector<Key> take_late(time_point now) {
    std::vector<Key> late;
    while (!order_.empty() && order_.begin()->first <= now) {
      late.push_back(order_.begin()->second);
      remove(late.back());
    }
    return late;
  }
  /// Whose time would come first; it is forgotten. None: nobody is there.
  std::optional<Key> take_first() {
    if (order_.empty()) return std::nullopt;
    const auto first = order_.begin()->second;
    remove(first);
    return first;
  }
  /// A timer has fired: when to be woken again, unless a timer that is still set comes in time.
  std::optional<time_point> woken(time_point now) {
    timers_.erase(timers_.begin(), timers_.upper_bound(now));
    return next();
  }

 private:
  std::optional<time_point> next() {
    if (order_.empty()) return std::nullopt;
    const auto first = order_.begin()->first;
    if (!timers_.empty() && *timers_.begin() <= first) return std::nullopt;
    timers_.insert(first);
    return first;
  }

  std::map<Key, time_point> when_;
  std::set<std::pair<time_point, Key>> order_;
  /// All that are set: one that is forgotten would be set again by each that fires.
  std::set<time_point> timers_;
};

}  // namespace troupe::request
