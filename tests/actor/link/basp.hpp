#pragma once

// The contract's processes on CAF's own sockets and threads, and a third one that leads one to the
// other.

#include "actors/link/system_config.hpp"
#include "tests/actor/link/contract.hpp"

#include <caf/all.hpp>

#include <cstdint>
#include <string>

namespace troupe::link::contract {

/// What a machine that is busy otherwise may add to any time that is promised.
inline constexpr milliseconds busy_machine{3'000};

/// Real time, looked at again and again.
bool wait_until(const std::function<bool()>& condition, milliseconds at_most);

/// An actor system as every process of the project has one, and its side.
class basp_process {
 public:
  basp_process(const std::string& host, std::uint8_t number, const std::string& cluster = "c");
  ~basp_process();
  basp_process(const basp_process&) = delete;
  basp_process& operator=(const basp_process&) = delete;

  system_config config;
  caf::actor_system system{config};
  side at;
};

/// Whose actors others may ask for, by name, in a process to which all of them are connected: how
/// two come to know each other that are not. BASP's messages between them go over it.
class exchange {
 public:
  exchange();
  ~exchange();
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;
  std::uint16_t port() const { return port_; }

 private:
  system_config config_;
  caf::actor_system system_{config_};
  caf::actor desk_;
  std::uint16_t port_ = 0;
};

/// Connects to an exchange and leaves `who` there; false: it is not to be reached.
bool leave_at_exchange(caf::actor_system& system, std::uint16_t port, const std::string& name,
                       const caf::actor& who);
/// Connects to an exchange and asks for somebody; none: it has nobody by that name, or is not to be
/// reached.
caf::actor ask_exchange(caf::actor_system& system, std::uint16_t port, const std::string& name);

/// Whether BASP has a connection of its own to where this actor is.
bool is_direct(caf::actor_system& system, const caf::actor& who);

}  // namespace troupe::link::contract
