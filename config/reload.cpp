#include "config/reload.hpp"

#include "config/effective.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace troupe::config {

std::vector<std::string> sections_for_restart(const cluster& running, const cluster& next) {
  auto as_it_was = next;
  as_it_was.generation = running.generation;
  as_it_was.section.operator_keys = running.section.operator_keys;
  as_it_was.tenants = running.tenants;
  set_digests(as_it_was);
  std::set<std::string> differ;
  for (const auto& [name, digest] : running.section_digests)
    if (const auto i = as_it_was.section_digests.find(name);
        i == as_it_was.section_digests.end() || i->second != digest)
      differ.insert(name);
  for (const auto& [name, digest] : as_it_was.section_digests)
    if (!running.section_digests.contains(name)) differ.insert(name);
  return {differ.begin(), differ.end()};
}

std::vector<problem> problems_of_reload(const in_force& now, const cluster& next,
                                        const std::string& asked) {
  std::vector<problem> out;
  const auto at = [&](const char* key) {
    const auto i = next.origins.find(key);
    return i == next.origins.end() ? location{next.file, 0, 0} : i->second;
  };
  if (const auto others = sections_for_restart(now.started, next); !others.empty())
    out.push_back({at(""), fmt::format("other than in tenants, operator_keys and generation the "
                                       "file differs from what the node runs by in {}: that takes "
                                       "a restart of the node",
                                       fmt::join(others, ", "))});
  if (next.generation < now.generation)
    out.push_back({at("cluster.generation"),
                   fmt::format("generation {} is older than {}, which the node goes by",
                               next.generation, now.generation)});
  else if (next.generation == now.generation && next.digest != now.digest)
    out.push_back({at("cluster.generation"),
                   fmt::format("the file has changed, and its generation is still {}: set "
                               "`generation = {}` in [cluster], so that it is known which is newer",
                               next.generation, next.generation + 1)});
  if (!asked.empty() && next.digest != asked)
    out.push_back({at(""), fmt::format("the digest of this file is {}, not {} as at the terminal: "
                                       "copy the same file to all hosts",
                                       next.digest, asked)});
  if (now.reloads >= reloads_max)
    out.push_back({at(""), fmt::format("the node has taken over {} files since its start, which is "
                                       "all that it can: restart it",
                                       now.reloads)});
  // What was closed is not opened to everybody by a table that is missing.
  if (now.tenants && next.tenants.empty())
    out.push_back({at(""), "there is no [[tenant]], and without one everybody may come in: to open "
                           "the gateways so takes a restart of the nodes"});
  return out;
}

}  // namespace troupe::config
