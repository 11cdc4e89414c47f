#include "actors/capacity/calibrated.hpp"

namespace troupe::capacity {

expected<cost_model> cost_model_of(const config::calibration& c) {
  return cost_model::make(
      {c.alpha, c.alpha2, c.beta, c.beta_step, c.gamma, c.image},
      {c.device_class, c.usual_batch, provenance::calibrated, c.file, c.mu_per_minute});
}

std::map<std::string, cost_model> cost_models_of(const config::pool_costs& read) {
  std::map<std::string, cost_model> all;
  for (const auto& [pool, costs] : read.of_pool)
    if (auto model = cost_model_of(costs)) all.emplace(pool, *std::move(model));
  return all;
}

}  // namespace troupe::capacity
