#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/scheduled_actor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::supervision {

/// One child of a supervisor as it is now.
struct child_report {
  enum class condition : std::uint8_t { running, stopping, waiting, ended } now = condition::ended;
  std::string id;
  std::uint64_t generation = 0;  ///< of the last start
  std::uint32_t restarts = 0;    ///< since the supervisor started
  std::string last_end;          ///< why the last incarnation ended; empty if none did
  caf::actor actor;              ///< null: there is none now
};

/// What an actor says of itself: name and value, for people.
using actor_facts = std::vector<std::pair<std::string, std::string>>;

/// To any actor of a node's tree: how are you? Answered with `actor_report`.
struct describe_actor {};
struct actor_report {
  std::size_t mailbox = 0;  ///< messages that wait
  actor_facts facts;
  std::vector<child_report> children;
};

/// The handler of `describe_actor` for an actor's behaviour. The mailbox is counted by its owner,
/// since that is the only thread that may look into it.
template <class Facts>
auto answers_for_itself(caf::scheduled_actor* self, Facts facts) {
  return [self, facts](const describe_actor&) {
    return actor_report{self->mailbox().size(), facts(), {}};
  };
}
inline auto answers_for_itself(caf::scheduled_actor* self) {
  return answers_for_itself(self, [] { return actor_facts{}; });
}

}  // namespace troupe::supervision

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::supervision::describe_actor)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::supervision::actor_report)
