#include "topology/topology.hpp"

namespace troupe::topology {

distance between(const place& a, const place& b) {
  // From the top down: below the first level at which two places differ, equal names mean nothing
  // ("rack 1" exists in every zone). A level that neither names separates nobody and joins nobody.
  struct level {
    const std::string& a;
    const std::string& b;
    distance when_shared;
  };
  const level levels[] = {{a.region, b.region, distance::same_region},
                          {a.zone, b.zone, distance::same_zone},
                          {a.rack, b.rack, distance::same_rack},
                          {a.host, b.host, distance::same_host}};
  auto nearest = distance::remote;
  for (const auto& l : levels) {
    if (l.a != l.b) break;
    if (!l.a.empty()) nearest = l.when_shared;
  }
  return nearest;
}

std::string to_string(distance d) {
  switch (d) {
  case distance::same_host:
    return "same_host";
  case distance::same_rack:
    return "same_rack";
  case distance::same_zone:
    return "same_zone";
  case distance::same_region:
    return "same_region";
  case distance::remote:
    return "remote";
  }
  return "unknown";
}

}  // namespace troupe::topology
