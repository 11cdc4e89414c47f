#pragma once

#include "gpu/transfer/backend.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace troupe::transfer::ucx {

/// Headers of our active messages; little endian, fixed size, checked before anything else is read.
/// `connection` is drawn at random by the side that connects.
inline constexpr std::uint32_t wire_magic = 0x31564b54;

enum class control_kind : std::uint32_t {
  hello = 1,    ///< the connecting side's worker address; first, and alone until it is answered
  welcome = 5,  ///< the answer: the connection stands. UCX keeps no order between messages that it
                ///< queued while it was connecting
  message = 2,  ///< what `send_control` was given
  goodbye = 3,  ///< the sender has forgotten this connection
  decline = 4,  ///< a u64, the number of a piece that won't be taken; UCX itself would tell its
                ///< sender that all is well
};

struct control_header {
  std::uint32_t magic = wire_magic;
  control_kind kind = control_kind::message;
  std::uint64_t connection = 0;
};

struct piece_header {
  std::uint32_t magic = wire_magic;
  std::uint32_t piece = 0;
  std::uint64_t connection = 0;
  std::uint64_t transfer = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t number = 0;  ///< of the send, in its connection
};

static_assert(sizeof(control_header) == 16 && sizeof(piece_header) == 40);

template <class Header>
std::optional<Header> read_header(const void* bytes, std::size_t size) {
  static_assert(std::is_trivially_copyable_v<Header>);
  Header header;
  if (size != sizeof header) return std::nullopt;
  std::memcpy(&header, bytes, sizeof header);
  if (header.magic != wire_magic) return std::nullopt;
  return header;
}

}  // namespace troupe::transfer::ucx
