#pragma once

#include "messages/base/planted.hpp"

namespace troupe::sim {

/// A planted bug is in for as long as this lives.
class planting {
 public:
  explicit planting(planted::bug b) { planted::present = b; }
  ~planting() { planted::present = planted::bug::none; }
  planting(const planting&) = delete;
  planting& operator=(const planting&) = delete;
};

}  // namespace troupe::sim
