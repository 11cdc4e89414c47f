#pragma once

#include "apps/sim/chaos_run.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim {

/// Many runs, summed up. Pure.
struct batch {
  run_options options;          ///< of the first
  std::uint64_t next_seed = 0;  ///< the first that has not run
  std::uint64_t runs = 0;
  double seconds = 0;
  std::uint64_t hash = 0;  ///< over all runs, in order
  std::uint64_t events = 0, requests = 0, finished = 0, failed = 0, left = 0, cut_off = 0;
  std::uint64_t faults = 0;
  std::uint64_t moves = 0;                ///< of running streams
  std::uint64_t faults_min = UINT64_MAX;  ///< of one run
  std::map<std::string, std::uint64_t> failures, attempts;
  coverage hits{};
  struct bad_run {
    std::uint64_t seed = 0;
    std::vector<finding> findings;
  };
  std::vector<bad_run> bad;

  void add(const run_result& r);
  /// Pairs that can come about and have not.
  std::vector<std::pair<fault_kind, phase>> never_hit() const;
};

std::string to_json(const batch& b);
std::string to_text(const batch& b);

/// How somebody sees a run once more.
std::string replay_command(const run_options& o);
/// What led to the findings: the faults, the processes, and whom the findings are about.
std::string story(const run_result& r, std::size_t lines_max);

/// The state of a long batch, to go on from later; and back. Errors: `bad_state`, also for another
/// batch than `options` begin.
std::string save(const batch& b);
expected<batch> load(const std::string& text, const run_options& options);

std::string_view to_string(planted::bug b);
/// `none` for an unknown name.
planted::bug parse_bug(std::string_view name);

}  // namespace troupe::sim
