#pragma once

#include "actors/request/settlement.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::request {

/// How one attempt at one prompt travelled.
struct attempt_record {
  std::uint16_t prompt = 0;
  std::string plan;
  std::string route_reason;
  std::string prefill_worker;
  std::string decode_worker;
  bool prefill_done = false;
  double queue_ms = 0;
  double compute_ms = 0;
  std::uint32_t prefill_cached_tokens = 0;
  std::uint64_t transfer_bytes = 0;
  std::uint32_t pieces = 0;
  double transfer_ms = 0;
  double exposed_ms = 0;
  std::string transport;
  std::uint32_t from_token = 0;
  std::uint32_t to_token = 0;
  bool moved = false;  ///< its stream went on elsewhere, with its KV
  std::string error;   ///< why the attempt ended early
};

/// Attempts of one prompt that a timeline tells of; the last one's place is the next one's, too.
inline constexpr std::size_t attempt_records_max = 32;

/// A request's account of itself.
struct timeline {
  std::string id;           ///< by its client's choice
  msg::request_id request;  ///< which no other has
  std::string tenant;       ///< empty: there are none
  std::string model;
  std::string status;  ///< running, done, failed, cancelled
  std::vector<attempt_record> attempts;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
  double waited_ms = 0;  ///< for limits and capacity, before all that follows
  double ttft_ms = -1;
  double total_ms = 0;
  std::string finish;
  std::shared_ptr<const settlement> settled;  ///< null: not yet
};

std::string to_json(const timeline& t);

/// Finished timelines that are kept for `GET /debug/requests/{id}`; the oldest are forgotten.
inline constexpr std::size_t timelines_max = 1'000;

/// The last requests' timelines by external id, which clients choose: each tenant has its own.
/// Thread-safe.
class timeline_store {
 public:
  /// Keeps what was settled of it before.
  void put(const timeline& t);
  /// No effect where another request has taken the name, or nobody knows it any more.
  void settle(const ended_request& x, std::shared_ptr<const settlement> what);
  /// `of`: only this tenant's; none: whosever, the first by tenant of several. Empty: not known.
  std::string get(const std::string& id, const std::optional<std::string>& of = std::nullopt) const;

 private:
  using key = std::pair<std::string, std::string>;  ///< external id, tenant
  mutable std::mutex mutex_;
  std::map<key, timeline> by_id_;
  std::deque<key> order_;
};

}  // namespace troupe::request
