#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control {

/// Whether shards seem to die one after the other of the keys that they are given (Dicer's "key of
/// death"): crashes within `retention`, over the number of shards when the first of them crashed.
/// From `threshold` on the keys of a shard that crashed are given to nobody else until the crashes
/// are old. Pure; times are of one clock.
class key_of_death {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes retention{10};
  static constexpr double threshold = 0.25;
  /// Below two crashes there is no series: in a cluster of up to four shards one is a quarter.
  static constexpr std::size_t crashes_min = 2;

  /// `who`: the shards that crashed at once; `shards`: how many there were.
  void crashed(clock::time_point now, std::size_t shards, std::vector<std::string> who = {}) {
    forget(now);
    crashes_.push_back({now, std::max<std::size_t>(1, shards), std::move(who)});
  }
  /// The one at that time was none: who was taken for dead is there again.
  void withdraw(clock::time_point when) {
    const auto i = std::find_if(crashes_.begin(), crashes_.end(),
                                [&](const crash& c) { return c.when == when; });
    if (i != crashes_.end()) crashes_.erase(i);
  }
  bool suspected(clock::time_point now) {
    forget(now);
    return crashes_.size() >= crashes_min &&
           static_cast<double>(crashes_.size()) / static_cast<double>(crashes_.front().shards) >=
               threshold;
  }

  /// Those whose keys are held; empty where nothing is suspected.
  std::set<std::string> suspects(clock::time_point now) {
    std::set<std::string> out;
    if (suspected(now))
      for (const auto& c : crashes_) out.insert(c.who.begin(), c.who.end());
    return out;
  }

 private:
  struct crash {
    clock::time_point when;
    std::size_t shards;
    std::vector<std::string> who;
  };
  void forget(clock::time_point now) {
    while (!crashes_.empty() && now - crashes_.front().when > retention) crashes_.pop_front();
  }
  std::deque<crash> crashes_;  ///< bounded by the supervisors, which let nobody crash faster
};

}  // namespace troupe::control
