#pragma once

#include "messages/wire.hpp"

#include <caf/actor.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

namespace troupe::link {

/// Where a message that an actor gets came from. Travels beside every delivered envelope, so that a
/// handler can check generations and answer by name.
struct origin {
  msg::address from;
  msg::address to;
};

/// What became of the messages so far; whatever was dropped has its reason here.
struct post_counters {
  std::uint64_t delivered = 0;
  std::uint64_t forwarded = 0;
  std::uint64_t unknown_name = 0;
  std::uint64_t stale_generation = 0;
  std::uint64_t unknown_schema = 0;
  /// The only way leads back into the link that the message came from, or from one peer node to
  /// another.
  std::uint64_t no_route = 0;
};

/// What is at the other end of a link, as far as forwarding goes.
enum class far_end : std::uint8_t { node, engine };

/// Delivers messages by directory name: to an actor of this process, or into the link that leads to
/// its process.
///
/// Shared by all actors of one process; thread-safe. A name is bound by whoever supervises the
/// actor; routes (name → link) follow the directory. An unbound name's messages are dropped and
/// counted: senders hold deadlines and leases, so a loss is found by them, never by a queue here.
///
/// A local actor gets `(origin, msg::envelope<Schema>)`: two elements, dispatched on the schema. A
/// link gets `msg::parcel`.
class post_office {
 public:
  /// `generation` 0 never matches a stale check.
  void bind(const std::string& name, std::uint64_t generation, caf::actor target);
  void unbind(const std::string& name, std::uint64_t generation);

  /// Messages for `name` go into `link`. An engine process sends everything that it does not know
  /// to its node: `set_default_route`.
  void set_route(const std::string& name, std::uint64_t generation, caf::actor link,
                 far_end leads_to = far_end::node);
  void drop_route(const std::string& name);
  /// All routes into this link end (it is down).
  void drop_link(const caf::actor& link);
  void set_default_route(caf::actor link);

  template <class Schema>
  void send(msg::address to, msg::address from, msg::envelope<Schema> e) {
    deliver(msg::make_parcel(std::move(to), std::move(from), std::move(e)));
  }
  /// The general form. `from`: the link that it came in by; none for what this process says itself.
  /// A message never goes back into that link, and one that came from a peer node is never given to
  /// another: processes that each take the next one for the place of a name would send it round for
  /// ever. Nodes are all linked to each other, so no way needs a third.
  void deliver(msg::parcel p, const caf::actor& from = {}, far_end comes_from = far_end::engine);

  bool knows(const std::string& name) const;
  post_counters counters() const;

 private:
  struct binding {
    std::uint64_t generation = 0;
    caf::actor target;
    bool is_link = false;
    far_end leads_to = far_end::node;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, binding> bindings_;
  caf::actor default_route_;
  struct atomic_counters {
    std::atomic<std::uint64_t> delivered{0}, forwarded{0}, unknown_name{0}, stale_generation{0},
        unknown_schema{0}, no_route{0};
  };
  mutable atomic_counters counters_;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, origin& x) {
  return f(caf::meta::type_name("origin"), x.from, x.to);
}

}  // namespace troupe::link

CAF_BEGIN_TYPE_ID_BLOCK(troupe_link, caf::id_block::troupe_messages::end)
CAF_ADD_TYPE_ID(troupe_link, (troupe::link::origin))
CAF_END_TYPE_ID_BLOCK(troupe_link)
