#pragma once

#include <cstdint>
#include <string>

namespace troupe::topology {

/// Where a host stands: region > zone > rack > host. Empty names are places of their own level that nobody shares.
struct place {
  std::string region;
  std::string zone;
  std::string rack;
  std::string host;

  friend bool operator==(const place&, const place&) = default;
};

/// How far apart two places are; smaller is nearer. The values are on the wire of nothing, only their order counts.
enum class distance : std::uint8_t { same_host, same_rack, same_zone, same_region, remote };

distance between(const place& a, const place& b);

/// `same_host`, `same_rack`, ...: for reasons and metrics.
std::string to_string(distance d);

}  // namespace troupe::topology
