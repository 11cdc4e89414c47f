#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace troupe::admission {

/// What one tenant has done with one model at one gateway, since the hub's start, and does now.
struct tenant_account {
  std::string tenant;
  std::string model;
  std::uint64_t admitted = 0;
  std::map<std::string, std::uint64_t> refused;  ///< by reason
  double charged_mu = 0;
  double reserved_mu = 0;  ///< of what runs
  std::uint32_t open = 0;
  std::size_t waiting = 0;
  double waiting_mu = 0;
  bool on_floor = false;  ///< this gateway hears of no owner of the budget
};

}  // namespace troupe::admission
