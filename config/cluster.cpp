#include "config/cluster.hpp"

#include "config/values.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::config {

namespace {

template <class T>
const T* find(const std::vector<T>& all, const std::string& name) {
  const auto i = std::find_if(all.begin(), all.end(), [&](const T& x) { return x.name == name; });
  return i == all.end() ? nullptr : &*i;
}

}  // namespace

const host* cluster::find_host(const std::string& name) const { return find(hosts, name); }
const model* cluster::find_model(const std::string& name) const { return find(models, name); }
const pool* cluster::find_pool(const std::string& name) const { return find(pools, name); }

std::string to_string(engine_kind kind) {
  switch (kind) {
  case engine_kind::llama:
    return "llama";
  case engine_kind::simulated:
    return "simulated";
  }
  return "unknown";
}

std::string to_string(pool_role role) {
  switch (role) {
  case pool_role::prefill:
    return "prefill";
  case pool_role::decode:
    return "decode";
  case pool_role::both:
    return "both";
  }
  return "unknown";
}

std::vector<std::uint32_t> cpus_of(const pool& p, std::uint32_t index) {
  std::vector<std::uint32_t> all;
  for (const auto& text : p.cpus)
    if (const auto range = parse_cpus(text))
      for (auto cpu = range->first; cpu <= range->second; ++cpu) all.push_back(cpu);
  const auto share = all.size() / std::max<std::size_t>(1, p.engines_per_host);
  const auto begin = std::min(all.size(), index * share), end = std::min(all.size(), begin + share);
  return {all.begin() + static_cast<std::ptrdiff_t>(begin),
          all.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<engine_instance> engines_on(const cluster& c, const std::string& host) {
  std::vector<engine_instance> out;
  for (const auto& p : c.pools) {
    if (std::find(p.hosts.begin(), p.hosts.end(), host) == p.hosts.end()) continue;
    for (std::uint32_t i = 0; i < p.engines_per_host; ++i)
      out.push_back(
          {fmt::format("{}/{}/{}.{}", to_string(p.role), p.name, host, i), p.name, host, i});
  }
  return out;
}

bool has_others_like(const cluster& c, const pool& p) {
  std::size_t found = 0;
  for (const auto& x : c.pools)
    if (x.role == p.role && x.model == p.model) found += x.hosts.size() * x.engines_per_host;
  return found > 1;
}

}  // namespace troupe::config
