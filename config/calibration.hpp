#pragma once

#include "config/cluster.hpp"
#include "config/problem.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::config {

/// A file of `troupe bench calibrate`: what requests to one model cost on one device class. A
/// pool's `costs` names it.
struct calibration {
  std::string file;
  std::string model;
  std::string device_class;  ///< what was measured; the same words mean the same speed
  // Seconds that an engine is busy.
  double alpha = 0;          ///< per prompt token that is computed
  double alpha2 = 0;         ///< per (end² − begin²) of a computed range of the prompt
  double beta = 0;           ///< per sampled token
  double beta_step = 0;      ///< per decode step, shared by the streams in it
  double gamma = 0;          ///< per sampled token and token of context before it
  double image = 0;          ///< per image token
  double usual_batch = 1;    ///< streams in a decode step, where model units are counted
  double mu_per_minute = 0;  ///< of one engine within its latency objective; 0: not known
  // How good it was for workloads that it was not fitted to; parts of one. At the batch that each
  // of them had:
  double median_error = 0;
  double p90_error = 0;
  double bias = 0;
  // At `usual_batch`, as model units are counted:
  double usual_median_error = 0;
  double usual_p90_error = 0;
  double usual_bias = 0;
  location where;

  friend bool operator==(const calibration& a, const calibration& b) {
    return a.model == b.model && a.device_class == b.device_class && a.alpha == b.alpha &&
           a.alpha2 == b.alpha2 && a.beta == b.beta && a.beta_step == b.beta_step &&
           a.gamma == b.gamma && a.image == b.image && a.usual_batch == b.usual_batch &&
           a.mu_per_minute == b.mu_per_minute && a.median_error == b.median_error &&
           a.p90_error == b.p90_error && a.bias == b.bias &&
           a.usual_median_error == b.usual_median_error && a.usual_p90_error == b.usual_p90_error &&
           a.usual_bias == b.usual_bias;
  }
};

/// A longer calibration file is refused.
inline constexpr std::size_t calibration_bytes_max = 64U << 10U;

/// A calibration, or everything that is wrong with its file.
struct calibration_result {
  std::optional<calibration> value;
  std::vector<problem> problems;

  explicit operator bool() const { return value.has_value(); }
};

/// Reads and checks a file. Never throws; each fault is a problem.
calibration_result load_calibration(const std::string& path);
/// The same for text in memory; `filename` stands in the problems.
calibration_result parse_calibration(std::string_view text, const std::string& filename);

/// What `load_calibration` reads.
std::string print_calibration(const calibration& c);

/// The calibrations of a cluster's pools, by pool; pools without `costs` have none.
struct pool_costs {
  std::map<std::string, calibration> of_pool;
  std::vector<problem> problems;
};

/// Reads the files that a cluster file names. What is calibrated for another model is a problem;
/// whether it is for this hardware only an engine knows, which is told by `wrong_hardware`.
pool_costs read_costs(const cluster& c);

/// Why a pool's calibration does not hold on what an engine computes with; empty: it does, or it is
/// to be taken whatever it was made on.
std::string wrong_hardware(const cluster& c, const pool& p, const calibration& costs,
                           const std::string& device_class);

}  // namespace troupe::config
