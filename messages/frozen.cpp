#include "messages/frozen.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace troupe::msg {

namespace {

constexpr std::size_t word_bytes = sizeof(capnp::word);

error too_large(std::size_t bytes) {
  return {"message_too_large", "a message of " + std::to_string(bytes) +
                                   " bytes is above the limit of " +
                                   std::to_string(message_bytes_max) + " bytes; send it in parts"};
}

error malformed(std::string why) {
  return {"message_malformed", "a message from the wire is malformed: " + std::move(why)};
}

}  // namespace

expected<std::size_t> checked_total_words(std::span<const std::uint32_t> segment_words) {
  if (segment_words.empty() || segment_words.size() > message_segments_max)
    return malformed(std::to_string(segment_words.size()) + " segments, where 1 to " +
                     std::to_string(message_segments_max) + " are allowed");
  std::size_t total = 0;  // cannot overflow: at most 64 values of 32 bits
  for (auto words : segment_words) total += words;
  if (total == 0) return malformed("it has no words");
  if (total * word_bytes > message_bytes_max) return too_large(total * word_bytes);
  return total;
}

expected<frozen_message> frozen_message::freeze(
    std::unique_ptr<capnp::MallocMessageBuilder> builder) {
  auto result = std::make_shared<body>();
  // Captured once: getSegmentsForOutput is not const, so it must not run again while readers look
  // on.
  auto segments = builder->getSegmentsForOutput();
  auto copy = kj::heapArrayBuilder<segment>(segments.size());
  for (auto s : segments) {
    copy.add(s);
    result->bytes += s.size() * word_bytes;
  }
  if (result->bytes > message_bytes_max) return too_large(result->bytes);
  if (segments.size() > message_segments_max)
    return malformed("the builder made " + std::to_string(segments.size()) +
                     " segments; give it a better size hint");
  result->segments = copy.finish();
  result->builder = std::move(builder);
  return frozen_message{std::move(result)};
}

expected<frozen_message> frozen_message::adopt(kj::Array<capnp::word> words,
                                               std::span<const std::uint32_t> segment_words) {
  auto total = checked_total_words(segment_words);
  if (!total) return std::move(total).error();
  if (*total != words.size())
    return malformed("its table announces " + std::to_string(*total) + " words, it has " +
                     std::to_string(words.size()));
  auto result = std::make_shared<body>();
  auto table = kj::heapArrayBuilder<segment>(segment_words.size());
  std::size_t at = 0;
  for (auto size : segment_words) {
    table.add(words.asPtr().slice(at, at + size));
    at += size;
  }
  result->bytes = words.size() * word_bytes;
  result->segments = table.finish();
  result->words = std::move(words);
  return frozen_message{std::move(result)};
}

expected<frozen_message> frozen_message::from_bytes(std::span<const std::byte> bytes) {
  std::uint32_t count = 0;
  if (bytes.size() < sizeof(count)) return malformed("it ends in its segment table");
  std::memcpy(&count, bytes.data(), sizeof(count));
  if (count >= message_segments_max)
    return malformed("its table announces more than " + std::to_string(message_segments_max) +
                     " segments");
  ++count;
  // The table is padded to a whole word: 4 bytes for the count, 4 for each size.
  const std::size_t table_bytes = (4 + 4 * std::size_t{count} + 7) / 8 * 8;
  if (bytes.size() < table_bytes) return malformed("it ends in its segment table");
  std::vector<std::uint32_t> sizes(count);
  std::memcpy(sizes.data(), bytes.data() + 4, 4 * std::size_t{count});
  auto total = checked_total_words(sizes);
  if (!total) return std::move(total).error();
  if (bytes.size() - table_bytes != *total * word_bytes)
    return malformed("its table announces " + std::to_string(*total * word_bytes) + " bytes, " +
                     std::to_string(bytes.size() - table_bytes) + " follow");
  auto words = kj::heapArray<capnp::word>(*total);
  std::memcpy(words.begin(), bytes.data() + table_bytes, *total * word_bytes);
  return adopt(std::move(words), sizes);
}

kj::Array<capnp::word> frozen_message::to_words() const {
  if (!body_) return {};
  return capnp::messageToFlatArray(body_->segments.asPtr());
}

std::span<const frozen_message::segment> frozen_message::segments() const noexcept {
  if (!body_) return {};
  return {body_->segments.begin(), body_->segments.size()};
}

}  // namespace troupe::msg
