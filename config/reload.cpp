#include "config/reload.hpp"

#include "config/effective.hpp"

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

}  // namespace troupe::config
