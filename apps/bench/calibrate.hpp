#pragma once

#include "actors/capacity/fit.hpp"
#include "apps/bench/calibration_plan.hpp"
#include "apps/bench/recorder.hpp"
#include "apps/bench/target_settings.hpp"
#include "config/calibration.hpp"

#include <cstdint>
#include <iosfwd>
#include <span>
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
  double batch = 1;                ///< streams in a decode step, as observed
  capacity::error_summary errors;  ///< where that is known
  capacity::error_summary usual;   ///< where the file's `usual_batch` is taken for it, as units are
};

/// One step of the capacity's search. Each connection's first request is left out, since all of
/// those come at once.
struct capacity_level {
  std::uint32_t concurrency = 0;  ///< of each engine
  double batch = 1;
  double ttft_p95_ms = 0;
  double tpot_p95_ms = 0;
  double mu_per_minute = 0;  ///< of each engine
  bool meets = false;        ///< the objective
  bool chosen = false;       ///< as the capacity
  std::vector<capacity::request_shape> requests;
  double minutes = 0;
};

struct calibrate_report {
  config::calibration costs;
  double seconds_per_mu = 0;
  std::size_t fitted = 0;    ///< requests
  std::size_t left_out = 0;  ///< requests of all workloads that were not measured at one go
  std::vector<held_out_result> held_out;
  capacity::error_summary errors;  ///< of all workloads together, each at its own batch
  capacity::error_summary usual;   ///< the same at the file's `usual_batch`
  std::vector<capacity_level> levels;
};

/// For people, and as JSON.
std::string table_of(const calibrate_report& r);
std::string json_of(const calibrate_report& r);

/// The level with the most model units a minute among those that meet the objective; null where
/// none does. Pure.
const capacity_level* best_of(const std::vector<capacity_level>& levels);

/// Chooses that level, and counts all of them anew at its batch, which becomes the `usual_batch` of
/// `costs`: a unit is then worth the same at all of them. `engines`: that are measured together.
/// No effect where no level meets the objective. Pure.
void choose_capacity(std::vector<capacity_level>& levels, config::calibration& costs,
                     std::uint32_t engines);

/// A level's model units a minute, of each engine. `costs` are such as make a model.
double mu_per_minute_of(const capacity_level& l, const config::calibration& costs,
                        std::uint32_t engines);

/// So many requests of one workload may be left out, since another attempt was made at them: a few
/// per cent, at least one.
std::size_t left_out_max(std::size_t requests);

/// An answer as it came. Of a closed loop with so many connections, those that were not the first
/// on theirs: the first ones are all sent at once, and wait for each other.
struct answered_request {
  planned_request planned;
  outcome what;
};
recorder after_the_first(std::span<const answered_request> all, std::uint32_t connections);

/// Measures a running cluster, fits, judges, and writes the calibration file as a whole. Reports on
/// `out`, progress and errors go to `err`. Returns the exit code of the command.
int run_calibrate(const calibrate_settings& settings, std::ostream& out, std::ostream& err);

}  // namespace troupe::bench
