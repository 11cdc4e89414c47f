#include "apps/node/descriptors.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace troupe::apps {

namespace {

/// Beside the gateway's connections: connections without proof at three ports, links, consoles,
/// engines' pipes, logs and libraries.
constexpr std::uint64_t other_descriptors = 1'024;

}  // namespace

std::uint64_t descriptors_needed(const config::cluster& c, const std::string& host) {
  const bool gateway = std::any_of(c.gateways.begin(), c.gateways.end(),
                                   [&](const config::gateway& g) { return g.host == host; });
  return other_descriptors + (gateway ? c.limits.connections_max : 0);
}

std::uint64_t allow_descriptors(std::uint64_t needed) {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return 0;
  if (now.rlim_cur >= needed) return now.rlim_cur;
  auto more = now;
  more.rlim_cur = std::min<rlim_t>(needed, now.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &more) == 0 ? more.rlim_cur : now.rlim_cur;
}

}  // namespace troupe::apps
