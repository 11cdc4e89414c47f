#include "gpu/engine/llama/kv_format.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cstring>

namespace troupe::engine {

static_assert(std::endian::native == std::endian::little);

void seal(std::span<std::byte> out, std::uint64_t layout, position begin, position end,
          std::size_t payload_bytes) {
  kv_header header;
  header.layout = layout;
  header.begin = begin;
  header.end = end;
  header.bytes = payload_bytes;
  header.checksum = XXH3_64bits(out.data() + sizeof(kv_header), payload_bytes);
  std::memcpy(out.data(), &header, sizeof(header));
}

expected<std::span<const std::byte>> unseal(std::span<const std::byte> in, std::uint64_t layout,
                                            position begin, position end,
                                            std::size_t payload_bytes) {
  const auto refuse = [](std::string why) {
    return error{"kv_import_failed", "a piece of KV is refused: " + std::move(why)};
  };
  kv_header header;
  if (in.size() < sizeof(header))
    return refuse(fmt::format("{} bytes are less than its header", in.size()));
  std::memcpy(&header, in.data(), sizeof(header));
  if (header.magic != kv_header::magic_value) return refuse("it is no KV");
  if (header.version != kv_format_version)
    return refuse(
        fmt::format("its format is version {}, this is {}", header.version, kv_format_version));
  if (header.layout != layout)
    return refuse(fmt::format("it is of another model or layout ({:016x}, here {:016x})",
                              header.layout, layout));
  if (header.begin != begin || header.end != end)
    return refuse(fmt::format("it holds positions {} to {}, not {} to {}", header.begin, header.end,
                              begin, end));
  const auto payload = in.subspan(sizeof(header));
  if (header.bytes != payload.size() || payload.size() != payload_bytes)
    return refuse(fmt::format("{} bytes came, {} are announced and {} right", payload.size(),
                              header.bytes, payload_bytes));
  if (XXH3_64bits(payload.data(), payload.size()) != header.checksum)
    return refuse("its checksum is wrong");
  return payload;
}

}  // namespace troupe::engine
