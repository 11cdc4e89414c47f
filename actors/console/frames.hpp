#pragma once

#include "messages/envelope.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace troupe::console {

/// Spoken on an admin port: a frame is its length (4 bytes, little-endian), then a Cap'n Proto
/// message in the standard framing.
inline constexpr std::uint16_t protocol = 1;
inline constexpr std::size_t frame_header_bytes = 4;
/// Of one frame: a message and its segment table.
inline constexpr std::size_t frame_bytes_max = msg::message_bytes_max + 4 * 1024;

/// One message as a frame.
inline std::vector<char> to_frame(const msg::frozen_message& m) {
  const auto words = m.to_words();
  const auto bytes = words.asBytes();
  std::vector<char> out(frame_header_bytes + bytes.size());
  for (std::size_t i = 0; i < frame_header_bytes; ++i)
    out[i] = static_cast<char>(bytes.size() >> (8 * i));
  std::memcpy(out.data() + frame_header_bytes, bytes.begin(), bytes.size());
  return out;
}

/// Cuts a stream of bytes into messages. Pure.
class frame_reader {
 public:
  void push(std::span<const char> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  /// The next whole message; nothing while more bytes are needed. Errors: as
  /// `frozen_message::from_bytes`, and `message_too_large`, which is told from the header, before
  /// anything of it is kept. After an error nothing more can be read.
  expected<std::optional<msg::frozen_message>> next() {
    if (buffer_.size() < frame_header_bytes) return std::optional<msg::frozen_message>{};
    std::size_t size = 0;
    for (std::size_t i = 0; i < frame_header_bytes; ++i)
      size |= std::size_t{static_cast<unsigned char>(buffer_[i])} << (8 * i);
    if (size > frame_bytes_max)
      return error{"message_too_large", "a frame of " + std::to_string(size) + " bytes"};
    if (buffer_.size() < frame_header_bytes + size) return std::optional<msg::frozen_message>{};
    auto m = msg::frozen_message::from_bytes(
        std::as_bytes(std::span{buffer_}.subspan(frame_header_bytes, size)));
    buffer_.erase(buffer_.begin(),
                  buffer_.begin() + static_cast<std::ptrdiff_t>(frame_header_bytes + size));
    if (!m) return std::move(m).error();
    return std::optional{*std::move(m)};
  }

 private:
  std::vector<char> buffer_;
};

}  // namespace troupe::console
