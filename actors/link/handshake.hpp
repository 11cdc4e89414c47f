#pragma once

#include "messages/base/expected.hpp"
#include "messages/envelope.hpp"
#include "messages/link.capnp.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::link {

/// Versions of the protocol that this build speaks: its own and the one before.
/// 2: engines are drained by order, streams move.
inline constexpr std::uint16_t protocol_version = 2;
inline constexpr std::uint16_t protocol_version_min = 1;

/// 16 random bytes, drawn at each start of a process: CAF's node ids can collide.
using process_id = std::array<std::uint8_t, 16>;
process_id random_process_id();
std::string to_hex(const process_id& id);

/// The cluster file that a node goes by, as far as peers are told: replaced when it is reloaded.
/// Thread-safe.
class current_config {
 public:
  struct version {
    std::uint64_t generation = 1;
    std::map<std::string, std::uint64_t> sections;  ///< digests
  };
  version get() const {
    const std::lock_guard lock{mutex_};
    return version_;
  }
  void set(version v) {
    const std::lock_guard lock{mutex_};
    version_ = std::move(v);
  }

 private:
  mutable std::mutex mutex_;
  version version_;
};

/// What a process says of itself, and what it expects of peers.
struct identity {
  std::string cluster_id;
  process_id process{};
  msg::ProcessKind kind = msg::ProcessKind::NODE;
  std::string host;
  std::string engine;            ///< an engine's name
  std::uint64_t generation = 0;  ///< an engine's
  std::shared_ptr<current_config> config = std::make_shared<current_config>();
  std::uint16_t protocol_max = protocol_version;  ///< lower: as a build before this one
  std::vector<std::uint8_t>
      secret;  ///< of this start of the node; proves that an engine is its child
};

msg::envelope<msg::Hello> make_hello(const identity& self);

/// A peer that may join, as far as it told the truth.
struct peer_info {
  msg::ProcessKind kind = msg::ProcessKind::UNKNOWN;
  std::string host;
  std::string engine;
  std::uint64_t generation = 0;
  process_id process{};
  std::uint16_t protocol = 0;
  std::vector<std::string> skew;  ///< keys of the cluster file that differ; not a reason to refuse
  std::string behind;  ///< where files differ, the host whose file has the lower generation
};

/// Decides about a peer's Hello. Pure.
///
/// `known_hosts`: hosts of our cluster file. Errors, each with a message that names the difference:
/// `other_cluster`, `protocol_mismatch`, `self_connection`, `bad_secret`, `unknown_host`,
/// `duplicate_host`, `malformed_hello`. The message has the peer's own words in it.
expected<peer_info> judge(const identity& self, msg::Hello::Reader hello,
                          const std::vector<std::string>& known_hosts);

/// The sections of the cluster file that differ, or that only one side has; sorted.
std::vector<std::string> config_skew(const std::map<std::string, std::uint64_t>& ours,
                                     const std::map<std::string, std::uint64_t>& theirs);

}  // namespace troupe::link
