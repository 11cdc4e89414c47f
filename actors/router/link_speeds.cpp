#include "actors/router/link_speeds.hpp"

#include <algorithm>

namespace troupe::router {

void link_speeds::add(std::uint32_t from, std::uint32_t to, topology::distance far,
                      std::uint64_t bytes, std::uint64_t us) {
  if (bytes < sample_bytes_min || us == 0) return;
  const double sample = std::clamp(static_cast<double>(bytes) / (static_cast<double>(us) / 1e6),
                                   slowest_sample, fastest_sample);
  blend(by_distance_[static_cast<std::size_t>(far)], sample);
  if (const auto i = by_pair_.find(key(from, to)); i != by_pair_.end())
    blend(i->second, sample);
  else if (by_pair_.size() < pairs_max)
    by_pair_.emplace(key(from, to), sample);
  fastest_ = std::max(fastest_, sample);
}

double link_speeds::bytes_per_second(std::uint32_t from, std::uint32_t to,
                                     topology::distance far) const {
  if (!by_pair_.empty())
    if (const auto i = by_pair_.find(key(from, to)); i != by_pair_.end()) return i->second;
  return by_distance_[static_cast<std::size_t>(far)];
}

}  // namespace troupe::router
