#include "tests/unit/gpu/transfer/peer_process.hpp"

#include <chrono>
#include <cstdio>
#include <stdexcept>

namespace troupe::transfer::testing {

std::string hex(const std::vector<std::byte>& bytes) {
  std::string out;
  char two[3];
  for (auto b : bytes) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    out += two;
  }
  return out;
}

peer_process::peer_process() : helper_process(TROUPE_TRANSFER_PEER, {}) {
  const auto first = line(std::chrono::seconds(20));
  if (first.rfind("address ", 0) != 0)
    throw std::runtime_error("transfer_peer said '" + first + "'");
  for (std::size_t i = 8; i + 1 < first.size(); i += 2)
    address_.push_back(static_cast<std::byte>(std::stoi(first.substr(i, 2), nullptr, 16)));
}

}  // namespace troupe::transfer::testing
