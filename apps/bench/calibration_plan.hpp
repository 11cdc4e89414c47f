#pragma once

#include "apps/bench/prompts.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// One request of a workload, in tokens.
struct request_lengths {
  std::uint32_t prompt = 0;
  std::uint32_t output = 0;

  friend bool operator==(const request_lengths&, const request_lengths&) = default;
};

/// Requests that are sent by so many connections at once, each when its last answer has ended.
struct workload {
  std::string name;
  std::uint32_t concurrency = 1;
  double shared = 0;  ///< so much of each prompt begins like the others, so that a cache helps
  std::vector<request_lengths> requests;
};

struct calibration_scope {
  std::vector<std::uint32_t> concurrency = {1, 4, 8};
  std::vector<std::uint32_t> prompts = {64, 256, 1'024};
  std::vector<std::uint32_t> outputs = {8, 64};
  std::uint32_t requests_min = 4;  ///< of each point of the sweep; at least two for each connection
  std::uint32_t held_out = 24;     ///< requests of each workload that is not fitted to
  std::uint32_t engines = 1;       ///< that share the load: what is said above is for each
  std::uint64_t seed = 1;
};

/// Requests of one workload: all of their timelines must still be known when it is over.
inline constexpr std::uint32_t workload_requests_max = 800;

/// Every combination of concurrency, prompt and output, the points of one workload alike; and one
/// workload whose prompts share their first half, since contexts that are not computed tell apart
/// what grows with the context. Pure.
std::vector<workload> sweep_of(const calibration_scope& scope);

/// Mixed lengths between the shortest and the longest of the sweep, evenly over their logarithms,
/// one workload for each concurrency; and one that shares prefixes. Pure; the same seed brings the
/// same.
std::vector<workload> held_out_of(const calibration_scope& scope);

/// The same mix for the search of the capacity, with so many connections.
workload capacity_load(const calibration_scope& scope, std::uint32_t concurrency);

/// What a run's prompt of this number begins with: other runs' begin with something else, so that
/// nothing of them is found in a cache. Below 2^60, as `prompt_maker` wants it.
std::uint64_t prompt_key(std::uint32_t run, std::uint64_t number);

/// The first part of a prompt, `w.shared` of its own length, is cut from what `shared` makes for
/// all; the rest is `own`'s. Lengths are those of the request, whatever its key.
std::string prompt_of(const workload& w, const prompt_maker& shared, const prompt_maker& own,
                      const planned_request& r);

/// Concurrencies at which the capacity is looked for, up to `most`: about a factor of 1.4 apart.
std::vector<std::uint32_t> capacity_levels(std::uint32_t most);

}  // namespace troupe::bench
