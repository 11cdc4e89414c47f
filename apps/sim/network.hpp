#pragma once

#include "apps/sim/schedule.hpp"

#include "actors/link/link_actor.hpp"

#include <caf/actor_proxy.hpp>
#include <caf/all.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim {

/// How the network behaves.
struct network_terms {
  std::chrono::microseconds local_min{20}, local_max{200};     ///< between processes of one host
  std::chrono::microseconds remote_min{100}, remote_max{900};  ///< between hosts
  /// CAF's heartbeats: a connection over which nothing has come for so long is given up.
  std::chrono::milliseconds silence_min{4'000}, silence_max{5'000};
};

/// One direction between two processes: keeps order and loses nothing, like TCP. While the way is
/// cut, things wait; they are lost when an end gives up or dies.
class pipe {
 public:
  std::deque<std::pair<time_point, std::function<void()>>> waiting;
  time_point last{};      ///< nothing overtakes
  bool arranged = false;  ///< a delivery is due
};

/// The network of a simulated cluster: connections between processes, which carry messages of link
/// actors as CAF's middleman does (an actor of another process is known by a proxy, which ends with
/// it or with the connection), and ways between hosts, which can be cut in each direction.
///
/// Outlives the actor system.
class network {
 public:
  network(schedule& s, std::uint64_t seed, network_terms terms);

  void place(process_id p, std::string host) { hosts_[p] = std::move(host); }
  const std::string& host_of(process_id p) const { return hosts_.at(p); }

  // -- what processes do ---------------------------------------------------------
  expected<std::uint16_t> listen(process_id p, const std::string& address, std::uint16_t port,
                                 const caf::actor& listener);
  /// See `link::link_context::dialler`.
  caf::actor spawn_dialler(process_id p);

  // -- what happens to them --------------------------------------------------------
  /// From now on nothing gets from `from` to `to`.
  void cut(const std::string& from, const std::string& to);
  void heal(const std::string& from, const std::string& to);
  bool is_cut(process_id from, process_id to) const;
  bool is_cut(const std::string& from, const std::string& to) const {
    return cuts_.contains({from, to});
  }
  void frozen(process_id p);
  void thawed(process_id p);
  /// `lose`: what it had sent and what has not arrived is lost, too, as when its host dies.
  void died(process_id p, bool lose);

  // -- for other lanes over the same wires -------------------------------------------
  /// Carries something in order; `deliver` runs in `to`, `size` bytes later than an empty one.
  void carry(process_id from, process_id to, std::function<void()> deliver);

  void end() { over_ = true; }

 private:
  friend class remote_end;
  struct connection {
    std::uint64_t id = 0;
    std::array<process_id, 2> ends{};
    std::array<bool, 2> open{true, true};    ///< as each end sees it
    std::array<pipe, 2> out;                 ///< from that end
    std::array<std::uint64_t, 2> outages{};  ///< of what comes in at that end
    std::array<std::map<caf::actor_id, caf::strong_actor_ptr>, 2> proxies;  ///< at that end
  };

  void dial(process_id from, const std::string& address, std::uint16_t port,
            const caf::actor& dialler, std::uint64_t call);
  connection& connect(process_id a, process_id b);
  caf::strong_actor_ptr proxy_at(connection& c, std::size_t side, const caf::strong_actor_ptr& of);
  void post(std::uint64_t connection, std::size_t side, const caf::actor_addr& to,
            caf::strong_actor_ptr sender, caf::message what);
  void arrived(connection& c, std::size_t side, const caf::actor_addr& to,
               const caf::strong_actor_ptr& sender, caf::message what);
  void actor_gone(std::uint64_t connection, std::size_t side, caf::actor_id id,
                  const caf::error& reason);
  void close(connection& c, std::size_t side, const caf::error& why);
  void watch_silence(connection& c, std::size_t side);
  bool silent(const connection& c, std::size_t side) const;
  void push(pipe& p, process_id from, process_id to, std::function<void()> deliver);
  void drain(pipe& p, process_id from, process_id to);
  void flush_ways();
  std::chrono::nanoseconds latency(process_id from, process_id to);

  schedule& schedule_;
  seeded random_;
  network_terms terms_;
  std::map<process_id, std::string> hosts_;
  std::map<std::pair<std::string, std::uint16_t>, std::pair<process_id, caf::actor>> listeners_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::uint64_t, std::unique_ptr<connection>> connections_;
  std::map<std::pair<process_id, process_id>, pipe> lanes_;
  std::uint64_t next_connection_ = 1;
  std::uint16_t next_port_ = 20'000;
  bool over_ = false;
};

}  // namespace troupe::sim
