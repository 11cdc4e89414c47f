#pragma once

#include "messages/directory.capnp.h"
#include "messages/envelope.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::directory {

/// One actor as the directory knows it.
struct entry {
  std::string name;
  std::uint64_t generation = 0;
  msg::Role role = msg::Role::NONE;
  msg::EntryState state = msg::EntryState::UNKNOWN;
  std::string pool;
  std::string model;
  std::string host;
  std::vector<std::uint8_t> transfer_address;
  std::string transfer_kind;
  std::uint32_t slots = 0;
  std::uint32_t kv_tokens = 0;
  std::uint32_t kv_bytes_per_token = 0;
  std::uint32_t context_tokens = 0;
  std::string detail;
  std::string slow;          ///< evidence that it is far slower than usual; empty: it is not
  std::string device_class;  ///< the same words mean the same speed; empty: not known
  /// Tokens a second as measured when it was loaded, decode of one stream; 0: not known.
  float prefill_speed = 0;
  float decode_speed = 0;

  friend bool operator==(const entry&, const entry&) = default;
};

entry read(msg::Entry::Reader in);
void write(msg::Entry::Builder out, const entry& in);

/// What a change of the directory did.
struct change {
  std::vector<entry> added_or_changed;
  /// The last that was known of them. A lost host's workers are *unknown*, not dead: attempts and
  /// leases make that safe.
  std::vector<entry> removed;
  bool empty() const { return added_or_changed.empty() && removed.empty(); }
};

/// All entries by name; immutable once published.
using snapshot = std::map<std::string, entry>;

/// The replicated directory: for each host a set of entries, of which only that host is the
/// authority. Pure; the actor around it sends and receives.
class directory_state {
 public:
  using process_id = std::vector<std::uint8_t>;

  directory_state(std::string own_host, process_id own_process);

  /// Sets or removes one of our own entries. Returns what changed.
  change set_own(entry e);
  /// Only of this generation: a late word of an older incarnation does not take the newer one away.
  change remove_own(const std::string& name, std::uint64_t generation);

  /// Takes a peer's set. An update from the process that we know, with a version not above the
  /// last, changes nothing; one of a new process replaces the host's set.
  /// Throws kj::Exception for one that cannot be read; then nothing has changed.
  change merge(msg::DirectoryUpdate::Reader update);
  /// The link to a host is down: its entries are gone until it is back.
  change lose_host(const std::string& host);

  /// Our own set, to be sent to a peer.
  msg::envelope<msg::DirectoryUpdate> own_update() const;
  std::shared_ptr<const snapshot> all() const;
  const std::string& own_host() const { return own_host_; }

 private:
  struct host_set {
    process_id process;
    std::uint64_t version = 0;
    std::map<std::string, entry> entries;
  };
  std::string own_host_;
  std::map<std::string, host_set> hosts_;
};

}  // namespace troupe::directory
