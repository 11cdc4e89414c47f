#pragma once

#include "actors/request/deadline_queue.hpp"
#include "messages/job_key.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::request {

/// Answers that shards owe to a node's requests, until their time is over or their shard is lost.
/// Pure.
class owed_routes {
 public:
  using time_point = deadline_queue<msg::job_key>::time_point;

  /// When to be woken, if a timer must be set for it.
  std::optional<time_point> add(const msg::job_key& attempt, std::string shard,
                                std::uint64_t generation, time_point when) {
    shards_[attempt] = {std::move(shard), generation, when};
    return due_.add(attempt, when);
  }
  void remove(const msg::job_key& attempt) {
    if (shards_.erase(attempt) > 0) due_.remove(attempt);
  }
  struct owed {
    msg::job_key attempt;
    std::string shard;
    std::uint64_t generation = 0;  ///< by the directory; 0: it did not know the shard
    time_point due{};
  };
  /// Those whose time is over; they are forgotten.
  std::vector<owed> take_late(time_point now) {
    std::vector<owed> late;
    for (const auto& attempt : due_.take_late(now)) {
      const auto i = shards_.find(attempt);
      late.push_back({attempt, std::move(i->second.name), i->second.generation, i->second.due});
      shards_.erase(i);
    }
    return late;
  }
  /// Those that this shard's incarnations other than `alive` owe; they are forgotten.
  std::vector<owed> take_of(const std::string& shard, std::uint64_t alive) {
    std::vector<owed> all;
    for (const auto& [attempt, of] : shards_)
      if (of.name == shard && (alive == 0 || of.generation != alive))
        all.push_back({attempt, of.name, of.generation, of.due});
    for (const auto& o : all) remove(o.attempt);
    return all;
  }
  std::optional<time_point> woken(time_point now) { return due_.woken(now); }

 private:
  deadline_queue<msg::job_key> due_;
  struct incarnation {
    std::string name;
    std::uint64_t generation = 0;
    time_point due{};
  };
  std::map<msg::job_key, incarnation> shards_;
};

}  // namespace troupe::request
