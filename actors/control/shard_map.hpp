#pragma once

#include "actors/control/assignment.hpp"
#include "actors/directory/directory_actor.hpp"
#include "messages/base/planted.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::control {

/// What a node knows of the router shards: the newest assignment that it was told of, from the
/// cluster file until then. It is used whoever made it is gone or not. Thread-safe.
class shard_map {
 public:
  explicit shard_map(std::vector<std::string> shards)
      : current_(std::make_shared<const assignment>(assignment::uniform(std::move(shards)))) {}

  std::shared_ptr<const assignment> get() const {
    std::lock_guard lock{mutex_};
    return current_;
  }
  /// False: what is there is as new, or newer.
  bool offer(assignment next) {
    std::lock_guard lock{mutex_};
    if (next.number() <= current_->number()) return false;
    if (planted::is(planted::bug::keep_assignment) && current_->number() != assignment_number{})
      return false;
    current_ = std::make_shared<const assignment>(std::move(next));
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const assignment> current_;
};

/// Whom to ask: of the shards that the directory shows as ready, the one that `draw` chooses among
/// those of the key, then its other ones, then any other; `tried` were asked in vain before. A
/// shard that has just been lost may still be in the directory. Where none is ready, those that it
/// shows in any state (one that begins, or drains, answers all the same); where it shows none, as
/// if all were ready. Pure.
const std::string& choose_shard(const assignment& a, const directory::snapshot& all, key64 key,
                                std::uint64_t draw, std::uint32_t tried);

}  // namespace troupe::control
