#include "gpu/transfer/ucx/address.hpp"

#include <bit>
#include <cstring>

namespace troupe::transfer::ucx {

static_assert(std::endian::native == std::endian::little,
              "addresses and headers are little endian and written by memcpy");

namespace {

constexpr std::array<std::byte, 4> magic{std::byte{'T'}, std::byte{'K'}, std::byte{'V'},
                                         std::byte{'1'}};

template <class T>
void put(std::vector<std::byte>& out, T value) {
  auto at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <class T>
bool take(std::span<const std::byte>& in, T& value) {
  if (in.size() < sizeof value) return false;
  std::memcpy(&value, in.data(), sizeof value);
  in = in.subspan(sizeof value);
  return true;
}

error malformed(const char* why) {
  return {"peer_unreachable", std::string("the peer's KV transport address is malformed: ") + why};
}

}  // namespace

std::vector<std::byte> encode(const worker_address& address) {
  std::vector<std::byte> out(magic.begin(), magic.end());
  put(out, address.instance);
  for (const auto& lane : address.lanes) {
    put(out, static_cast<std::uint32_t>(lane.size()));
    out.insert(out.end(), lane.begin(), lane.end());
  }
  return out;
}

expected<worker_address> decode_address(std::span<const std::byte> bytes) {
  if (bytes.size() > address_bytes_max) return malformed("too long");
  if (bytes.size() < magic.size() || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    return malformed("not one of this version");
  bytes = bytes.subspan(magic.size());
  worker_address address;
  if (!take(bytes, address.instance)) return malformed("cut short");
  for (auto& lane : address.lanes) {
    std::uint32_t size = 0;
    if (!take(bytes, size) || size > bytes.size()) return malformed("cut short");
    lane.assign(bytes.begin(), bytes.begin() + size);
    bytes = bytes.subspan(size);
  }
  if (!bytes.empty()) return malformed("trailing bytes");
  return address;
}

}  // namespace troupe::transfer::ucx
