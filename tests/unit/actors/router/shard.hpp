#pragma once

#include "actors/router/router_policy.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace troupe::test {

using namespace troupe::router;

inline constexpr std::uint64_t first_lease = 1'000;

inline directory::entry worker(const std::string& name, msg::Role role, const std::string& host,
                               std::uint64_t generation = 7,
                               msg::EntryState state = msg::EntryState::READY) {
  directory::entry e;
  e.name = name;
  e.generation = generation;
  e.role = role;
  e.state = state;
  e.model = "m";
  e.host = host;
  return e;
}

/// Two racks: a1 and a2 in one, b1 in the other.
inline std::map<std::string, topology::place> places() {
  return {
      {"a1", {"r", "z", "a", "a1"}}, {"a2", {"r", "z", "a", "a2"}}, {"b1", {"r", "z", "b", "b1"}}};
}

/// A shard with its workers, asked from the host a1.
struct shard {
  router_policy policy;
  explicit shard(std::vector<directory::entry> entries, router_limits limits = {})
      : policy(limits, places(), {"m", "other"}, first_lease) {
    policy.update({std::move(entries), {}});
  }

  static route_query query(std::uint32_t prompt_bytes = 4'000) {
    route_query q;
    q.host = "a1";
    q.model = "m";
    q.prompt_bytes = prompt_bytes;
    q.max_tokens = 100;
    return q;
  }
  route_choice choose(const route_query& q = query()) {
    auto answer = policy.decide(q);
    if (auto* refused = std::get_if<route_refusal>(&answer)) FAIL(refused->message);
    return std::get<route_choice>(answer);
  }
  route_refusal refuse(const route_query& q = query()) {
    auto answer = policy.decide(q);
    REQUIRE(std::holds_alternative<route_refusal>(answer));
    return std::get<route_refusal>(answer);
  }
  router_policy::worker_view view(const std::string& name) const {
    for (auto& w : policy.workers())
      if (w.entry.name == name) return w;
    FAIL("no worker " << name);
    return {};
  }
  bool knows(const std::string& worker, std::vector<std::uint64_t> blocks,
             std::uint64_t sequence = 0) {
    return policy.prefixes(worker, 7, sequence, false, blocks, {});
  }
};

}  // namespace troupe::test
