#include "messages/wire.hpp"

#include <array>
#include <span>

namespace troupe::msg {

namespace {

caf::error refused(const troupe::error& e) {
  return caf::make_error(caf::sec::invalid_argument, e.code + ": " + e.message);
}

}  // namespace

caf::error save(caf::serializer& sink, const frozen_message& x) {
  auto segments = x.segments();
  auto count = static_cast<std::uint32_t>(segments.size());
  if (auto err = sink(count)) return err;
  for (auto s : segments) {
    auto words = static_cast<std::uint32_t>(s.size());
    if (auto err = sink(words)) return err;
  }
  for (auto s : segments) {
    // CAF's interface is shared by loading and saving, hence not const; a serializer only reads.
    auto* data = const_cast<capnp::word*>(s.begin());
    if (auto err = sink.apply_raw(s.size() * sizeof(capnp::word), data)) return err;
  }
  return caf::none;
}

caf::error load(caf::deserializer& source, frozen_message& x) {
  std::uint32_t count = 0;
  if (auto err = source(count)) return err;
  if (count == 0) {
    x = {};
    return caf::none;
  }
  if (count > message_segments_max)
    return refused({"message_malformed", std::to_string(count) + " segments announced"});
  std::array<std::uint32_t, message_segments_max> sizes{};
  for (std::uint32_t i = 0; i < count; ++i)
    if (auto err = source(sizes[i])) return err;
  std::span<const std::uint32_t> table{sizes.data(), count};
  auto total = checked_total_words(table);
  if (!total) return refused(total.error());
  auto words = kj::heapArray<capnp::word>(*total);
  std::size_t at = 0;
  for (auto size : table) {
    if (auto err = source.apply_raw(size * sizeof(capnp::word), words.begin() + at)) return err;
    at += size;
  }
  auto message = frozen_message::adopt(std::move(words), table);
  if (!message) return refused(message.error());
  x = *std::move(message);
  return caf::none;
}

std::string describe(const frozen_message& x) { return std::to_string(x.byte_size()) + " bytes"; }

}  // namespace troupe::msg
