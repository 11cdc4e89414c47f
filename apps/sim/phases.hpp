#pragma once

#include "apps/sim/schedule.hpp"

#include "messages/job_key.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace troupe::sim {

/// Where a request is on its way, as far as it can be seen from outside.
enum class phase : std::uint8_t {
  routing,       ///< no route yet
  queued,        ///< jobs at workers, nothing computed
  prefilling,    ///< its prompt is being computed
  transferring,  ///< KV is on its way
  adopting,      ///< all KV has been received, not adopted
  decoding,      ///< tokens come
  finishing,     ///< the client has all; jobs still end
};
inline constexpr std::size_t phases = 7;
std::string_view to_string(phase p);

/// Follows every request by the messages that are handled: its phase, and whom it is at.
class phase_watch {
 public:
  struct state {
    phase now = phase::routing;
    std::uint32_t attempt = 1;
    std::string prefill;  ///< worker; empty: none
    std::string decode;
  };

  void begins(const msg::request_id& id) { change(id, all_[id], phase::routing); }
  void ends(const msg::request_id& id) { all_.erase(id); }
  /// A message that an actor is about to handle.
  void sees(const caf::type_erased_tuple& content);
  /// A control message of a hand-over that arrives.
  void sees_control(std::span<const std::byte> bytes);
  /// Tokens have reached the client; `all`: the last ones.
  void tokens(const msg::request_id& id, bool all);

  const std::map<msg::request_id, state>& all() const { return all_; }
  /// How often a running stream was given a place elsewhere.
  std::size_t moves() const { return moves_; }
  /// Called when a request has come into another phase.
  std::function<void(const msg::request_id&, const state&)> on_change;

 private:
  void advance(const msg::job_key& key, phase to);
  void change(const msg::request_id& id, state& s, phase to);
  std::map<msg::request_id, state> all_;
  std::size_t moves_ = 0;
};

}  // namespace troupe::sim
