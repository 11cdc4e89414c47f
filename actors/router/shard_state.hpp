#pragma once

#include "actors/control/assignment.hpp"
#include "actors/router/session_book.hpp"
#include "messages/base/expected.hpp"
#include "messages/envelope.hpp"
#include "messages/wire.hpp"

#include <cstddef>
#include <vector>

namespace troupe::router {

/// Sessions in one ShardState; more go into a second message. Far below the cap of a message, also
/// when each has workers of its own.
inline constexpr std::size_t sessions_per_state_max = 4'096;

/// What a shard tells another of sessions that are the other's now, in whole messages.
/// Errors: as `draft::freeze`.
expected<std::vector<msg::envelope<msg::ShardState>>> make_states(
    const msg::address& from, const control::assignment_number& by,
    const std::vector<session_book::moving>& sessions);
/// Nothing on the wire is trusted: sessions of workers that are not named are left out.
std::vector<session_book::moving> read(msg::ShardState::Reader in);

}  // namespace troupe::router
