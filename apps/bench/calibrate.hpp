#pragma once

#include "actors/capacity/fit.hpp"
#include "apps/bench/calibration_plan.hpp"
#include "apps/bench/target_settings.hpp"
#include "config/calibration.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace troupe::bench {

/// The options of `troupe bench calibrate`, as they were given.
struct calibrate_settings : target_settings {
  calibrate_settings() { kind = "completions"; }

  std::string output;  ///< the calibration file
  calibration_scope scope;
  double ttft_ms = 0;  ///< objective of the p95; 0: none
  double tpot_ms = 0;
  std::uint32_t concurrency_max = 32;  ///< of the capacity's search, for each engine
  double request_timeout_s = 600;
  std::string json;  ///< file for the report
  bool progress = false;
};

/// How good the model is for one workload that it was not fitted to.
struct held_out_result {
  std::string name;
  double batch = 1;  ///< streams in a decode step, as observed
  capacity::error_summary errors;
};

/// One step of the capacity's search.
struct capacity_level {
  std::uint32_t concurrency = 0;  ///< of each engine
  double batch = 1;
  double ttft_p95_ms = 0;
  double tpot_p95_ms = 0;
  double mu_per_minute = 0;  ///< of each engine
  bool meets = false;        ///< the objective
  std::vector<capacity::request_shape> requests;
  double minutes = 0;
};

struct calibrate_report {
  config::calibration costs;
  double seconds_per_mu = 0;
  std::size_t fitted = 0;  ///< requests
  std::vector<held_out_result> held_out;
  capacity::error_summary errors;  ///< of all workloads together
  std::vector<capacity_level> levels;
};

/// For people, and as JSON.
std::string table_of(const calibrate_report& r);
std::string json_of(const calibrate_report& r);

/// The level with the most model units a minute among those that meet the objective; null where
/// none does. Pure.
const capacity_level* best_of(const std::vector<capacity_level>& levels);

/// Measures a running cluster, fits, judges, and writes the calibration file as a whole. Reports on
/// `out`, progress and errors go to `err`. Returns the exit code of the command.
int run_calibrate(const calibrate_settings& settings, std::ostream& out, std::ostream& err);

}  // namespace troupe::bench
