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
  /// A timer has fired: when to be woken again.
  std::optional<time_point> woken() {
    timer_.reset();
    return next();
  }

 private:
  std::optional<time_point> next() {
    if (order_.empty() || (timer_ && *timer_ <= order_.begin()->first)) return std::nullopt;
    timer_ = order_.begin()->first;
    return timer_;
  }

  std::map<Key, time_point> when_;
  std::set<std::pair<time_point, Key>> order_;
  std::optional<time_point> timer_;  ///< the earliest that is set
};

}  // namespace troupe::request
