#pragma once

#include "actors/directory/directory_actor.hpp"
#include "actors/drain/drain_run.hpp"
#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::drain {

// -- messages inside the process ------------------------------------------------------------

/// To the drain actor: takes engines of the cluster out of service, or back. `reply_to` gets a
/// `drain_progress` at once and at each change, the last one with `over`.
struct drain_order {
  std::uint64_t id = 0;  ///< the asker's; comes back in the progress
  target at;
  bool undrain = false;  ///< take it back; all below is void then
  /// What runs may end by itself, or is moved to other engines, within this; the rest is then
  /// repeated elsewhere.
  std::chrono::milliseconds within{60'000};
  /// From then on whatever runs is moved; before, only what would not end within `within`.
  std::chrono::milliseconds move_after{60'000};
  msg::DrainEnd then = msg::DrainEnd::KEEP;
  std::uint32_t at_once = 0;  ///< engines at a time: 1 is a rolling restart; 0: all
  caf::actor reply_to;
};

struct drain_progress {
  std::uint64_t id = 0;
  std::vector<engine_progress> engines;
  bool over = false;
  std::string refused;  ///< why nothing was ordered; empty: something was
};

struct drain_options {
  std::string host;
  std::uint64_t first_run = 1;  ///< larger than that of any earlier incarnation
  /// What an engine may take on top of `within`: to end, and to load again.
  std::chrono::milliseconds restart_max{330'000};
  std::shared_ptr<link::post_office> office;
  caf::actor directory;
};

/// Orders that are carried out at the same time; more are refused.
inline constexpr std::size_t runs_max = 64;

/// `drain/<host>`: what launchers answer to.
std::string drain_name(const std::string& host);

/// Carries orders of this node's consoles out, anywhere in the cluster: it tells the launchers, by
/// name, and passes on what they say. It holds nothing that matters: an order that its launcher has
/// got is carried out without it.
caf::actor spawn_drain(caf::actor_system& system, drain_options options);

}  // namespace troupe::drain

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::drain::drain_order)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::drain::drain_progress)
