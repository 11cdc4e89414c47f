#pragma once

#include "tests/support/helper_process.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::transfer::testing {

/// A running `transfer_peer`.
class peer_process : public test::helper_process {
 public:
  peer_process();
  const std::vector<std::byte>& address() const { return address_; }

 private:
  std::vector<std::byte> address_;
};

std::string hex(const std::vector<std::byte>& bytes);

}  // namespace troupe::transfer::testing
