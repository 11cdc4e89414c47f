#pragma once

#include "actors/control/assignment.hpp"

#include <span>
#include <string_view>

namespace troupe::control {

/// The key by which a request finds its shard: the client's session, or else the first block of
/// the prompt's chain, which stays the same from turn to turn of a conversation; each under its
/// model. What has neither (a prompt shorter than a block) goes by `otherwise`, a random number:
/// it has nothing that a shard could know of. Pure.
key64 shard_key(std::string_view model, std::string_view session,
                std::span<const std::uint64_t> chain, std::uint64_t otherwise);

}  // namespace troupe::control
