#pragma once

#include "apps/sim/checkers.hpp"
#include "apps/sim/client.hpp"
#include "apps/sim/history.hpp"
#include "apps/sim/world.hpp"

#include "messages/base/planted.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::sim {

struct run_options {
  std::uint64_t seed = 1;
  std::size_t requests = 200;
  std::size_t faults = 8;        ///< 0: nothing fails
  std::vector<fault_kind> only;  ///< kinds of faults; empty: all
  planted::bug planted = planted::bug::none;
  bool readable = false;  ///< keep a history for people
};

struct run_result {
  std::uint64_t seed = 0;
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
  std::chrono::milliseconds virtual_time{0};
  std::size_t requests = 0;
  std::size_t finished = 0;
  std::size_t failed = 0;
  std::size_t left = 0;
  std::size_t cut_off = 0;  ///< with their gateway
  std::size_t faults = 0;   ///< that hit somebody
  std::size_t moves = 0;    ///< places that running streams were given elsewhere
  coverage hits{};
  std::vector<finding> findings;
  std::map<std::string, std::size_t> attempts;  ///< that ended early, by code
  /// Where requests of shapes that are to be answered failed all the same, by code.
  std::map<std::string, std::size_t> failures;
  std::vector<history::entry> lines;
};

/// One run of the cluster under faults, by its seed alone.
run_result run_chaos(const run_options& options);

}  // namespace troupe::sim
