#pragma once

#include "messages/envelope.hpp"

#include <capnp/schema.h>

#include <cstdint>
#include <string>
#include <utility>

namespace troupe::msg {

/// An actor as others know it: a directory name (`decode/llama/h2.0`) and the generation of its
/// current incarnation. Clients hold these, never handles: a restart changes the handle and the
/// generation, not the name.
struct address {
  std::string name;
  /// 0: whichever is current.
  std::uint64_t generation = 0;

  friend bool operator==(const address&, const address&) = default;
};

/// What goes between processes: a message for a name. A link forwards it without reading the body.
struct parcel {
  address to;
  address from;
  /// Cap'n Proto's type id of the body's root.
  std::uint64_t schema = 0;
  frozen_message body;
};

/// Cap'n Proto's 64-bit type id of a schema: stable, part of the wire.
template <class Schema>
std::uint64_t schema_id() {
  return capnp::typeId<Schema>();
}

template <class Schema>
parcel make_parcel(address to, address from, envelope<Schema> e) {
  return {std::move(to), std::move(from), schema_id<Schema>(), std::move(e.body)};
}

}  // namespace troupe::msg
