#pragma once

#include "actors/control/load_map.hpp"
#include "messages/control.capnp.h"

#include <caf/allowed_unsafe_message_type.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::control {

/// Keys that stand out in one account; of ranges, as many as there may be slices.
inline constexpr std::size_t keys_told_max = 64;

/// Seconds of engine time for each second, and requests, that an account's figure may come to: far
/// above what a shard can grant, and so that all of them together are a number.
inline constexpr double load_told_max = 1e6;

/// A shard's own account of what it does. Loads are seconds of engine time for each second, granted
/// by its leases, averaged over a decaying window of `load_window`.
struct shard_load {
  std::string shard;
  std::uint64_t generation = 0;  ///< of its incarnation
  assignment_number goes_by;
  std::vector<range_load> ranges;
  std::vector<key_load> keys;
  std::uint64_t requests = 0;   ///< decisions, since its incarnation began
  std::uint64_t misrouted = 0;  ///< of those, for keys of others
  double requests_per_second = 0;
  std::uint64_t blocks = 0;  ///< that its index knows of
  std::uint32_t sessions = 0;
  std::uint32_t leases = 0;
};

/// To a shard of this node: what is your account? Answered with `shard_load`, which it also sends
/// to the control host by itself.
struct describe_load {};

void write(msg::ShardLoad::Builder out, const shard_load& in);
/// Nothing on the wire is trusted: what is too much of it is cut (loads to `load_told_max`), and
/// what is no number counts as 0.
shard_load read(msg::ShardLoad::Reader in);

}  // namespace troupe::control

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::control::describe_load)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::control::shard_load)
