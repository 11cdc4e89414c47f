#pragma once

// Inside of the link actors: what listeners share.

#include "actors/link/link_actor.hpp"

#include <caf/event_based_actor.hpp>

namespace troupe::link {

/// What becomes of a Hello; never throws, whatever is in it.
expected<peer_info> judge_hello(const link_context& context, const msg::envelope<msg::Hello>& e);

/// The answer to it: a link of our own, or a refusal, of which the owner hears.
void answer_hello(caf::event_based_actor* self, const std::shared_ptr<const link_context>& context,
                  const caf::actor& peer, const expected<peer_info>& judged);

/// A stray error or message ends no actor of a link.
void ignore_strays(caf::scheduled_actor* self);

}  // namespace troupe::link
