#pragma once

#include <cstdint>
#include <string>

namespace troupe::topology {

/// Where a host stands: region > zone > rack > host. An empty name says nothing: nobody shares a
/// level that has no name, but two places that both leave a level out can still share one below it
/// (a small cluster names racks only).
struct place {
  std::string region;
  std::string zone;
  std::string rack;
  std::string host;

  friend bool operator==(const place&, const place&) = default;
};

/// How far apart two places are; smaller is nearer. The values are on the wire of nothing, only
/// their order counts.
enum class distance : std::uint8_t { same_host, same_rack, same_zone, same_region, remote };

/// The smallest distance at which both places have the same non-empty name, with nothing different
/// above it. Symmetric.
distance between(const place& a, const place& b);

/// `same_host`, `same_rack`, ...: for reasons and metrics.
std::string to_string(distance d);

}  // namespace troupe::topology
