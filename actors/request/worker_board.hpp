#pragma once

#include "actors/directory/directory_state.hpp"
#include "messages/envelope.hpp"
#include "messages/route.capnp.h"

#include <map>
#include <mutex>
#include <string>

namespace troupe::request {

/// The last report of each worker, passed on by the router, for people and measurements.
/// Thread-safe.
class worker_board {
 public:
  /// False: one that is newer is known, by generation and progress. Each comes by several shards,
  /// in any order.
  bool put(const msg::envelope<msg::WorkerReport>& report);
  /// {"workers":[{"name","role","state",...}]}: every worker of the directory; one that has not
  /// reported yet has no figures and is not idle.
  std::string to_json(const directory::snapshot& all) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, msg::envelope<msg::WorkerReport>> reports_;
};

}  // namespace troupe::request
