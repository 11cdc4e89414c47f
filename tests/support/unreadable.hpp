#pragma once

#include "messages/envelope.hpp"

#include <cstring>

namespace troupe::test {

/// A message that a wire would let through, and that throws when its root is read: what a broken or
/// hostile peer may send.
template <class Schema>
msg::envelope<Schema> unreadable() {
  auto words = kj::heapArray<capnp::word>(1);
  std::memset(words.asBytes().begin(), 0x5a, sizeof(capnp::word));  // a pointer to nowhere
  const std::uint32_t size = 1;
  return {msg::frozen_message::adopt(std::move(words), {&size, 1}).value()};
}

}  // namespace troupe::test
