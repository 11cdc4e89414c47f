#pragma once

#include "actors/directory/directory_actor.hpp"
#include "actors/trust/certificate.hpp"

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::console {

/// Until a host that was asked must have answered; those that have not are named.
inline constexpr std::chrono::milliseconds answer_timeout{5'000};
/// Hosts that have not answered are asked again: a session is new to the others, and one whose
/// directory does not know it yet has no way to answer it. Queries change nothing.
inline constexpr std::chrono::milliseconds ask_again_interval{1'000};
/// Of an order, its progress is told at least so often.
inline constexpr std::chrono::milliseconds progress_interval{3'000};
/// Requests that a terminal may send ahead; above it the session ends.
inline constexpr std::size_t requests_ahead_max = 16;

struct session_options {
  std::string name;  ///< `console/<host>/<number>`
  std::uint64_t generation = 0;
  std::vector<std::string> hosts;  ///< of the cluster
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
  std::shared_ptr<const directory::directory_view> view;
  /// The node's drain actor as it is now; null: there is none.
  std::function<caf::actor()> drain;
  caf::actor port;  ///< gets `to_terminal`, and sends `from_terminal`
  /// What the person may do: an operator gives orders, a viewer looks.
  trust::role as = trust::role::operator_;
  std::string person;  ///< by their certificate; empty: on a plain port
};

/// A message from the terminal, as it came.
struct from_terminal {
  msg::frozen_message what;
};
/// A message for the terminal.
struct to_terminal {
  msg::frozen_message what;
};

/// One person at a terminal, as an actor of the cluster: in the directory, with a name that nodes
/// answer to. It serves one request after the other: asks the inspectors of the hosts that it
/// names, passes their reports on as they come, and ends with the names of those that were silent.
/// It ends with its port, and with a terminal that sends what cannot be read.
caf::actor spawn_session(caf::event_based_actor* listener, session_options options);

}  // namespace troupe::console

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::console::from_terminal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::console::to_terminal)
