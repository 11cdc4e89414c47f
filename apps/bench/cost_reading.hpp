#pragma once

#include "actors/capacity/fit.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::bench {

/// A request's measured cost, as `/debug/requests/ID` tells it. Errors: `not_settled` where it may
/// come yet; `not_measured` for a request that was not computed at one go (another attempt, a
/// failure, a cost that is a guess).
expected<capacity::measured_request> read_cost(std::string_view timeline);

/// What serves a model, as `/debug/workers` tells it.
struct measured_hardware {
  std::string device_class;
  std::uint32_t engines = 0;      ///< that decode
  std::uint32_t all_engines = 0;  ///< with those that only prefill
  bool idle = true;
};

/// Errors: `no_worker`; `several_device_classes`, which cannot be measured together; and
/// `unknown_device_class` of engines that do not tell.
expected<measured_hardware> read_hardware(std::string_view workers, const std::string& model);

}  // namespace troupe::bench
