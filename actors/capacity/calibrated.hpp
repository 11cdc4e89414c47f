#pragma once

#include "actors/capacity/cost_model.hpp"
#include "config/calibration.hpp"

#include <map>
#include <string>

namespace troupe::capacity {

/// What a calibration file says. Errors: those of `cost_model::make`; a checked file has none.
expected<cost_model> cost_model_of(const config::calibration& c);

/// By pool, of files that were read.
std::map<std::string, cost_model> cost_models_of(const config::pool_costs& read);

}  // namespace troupe::capacity
