#pragma once

#include "messages/common.capnp.h"

#include <compare>
#include <cstdint>

namespace troupe::msg {

/// 128 random bits: the name of a client's request in the whole cluster.
struct request_id {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const request_id&, const request_id&) = default;
};

/// One attempt at one prompt of a request; JobKey as a value.
struct job_key {
  request_id id;
  std::uint16_t prompt = 0;
  std::uint32_t attempt = 0;
  friend auto operator<=>(const job_key&, const job_key&) = default;
};

inline void write(JobKey::Builder out, const job_key& key) {
  out.setRequestHigh(key.id.high);
  out.setRequestLow(key.id.low);
  out.setPrompt(key.prompt);
  out.setAttempt(key.attempt);
}

inline job_key read(JobKey::Reader in) {
  return {{in.getRequestHigh(), in.getRequestLow()}, in.getPrompt(), in.getAttempt()};
}

}  // namespace troupe::msg
