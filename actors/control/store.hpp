#pragma once

#include "actors/control/assignment.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <functional>
#include <optional>

namespace troupe::control {

/// What a control host must not forget.
struct record {
  std::uint64_t term = 0;          ///< the largest that was ever taken; 0: none was
  std::optional<assignment> last;  ///< that may have been published
};

/// Where the record is kept: the seam to the disk. One writer at a time.
class store {
 public:
  virtual ~store() = default;

  /// The record as it was written last.
  virtual record last() const = 0;
  /// Writes all of a record, or nothing. `done` is called once, from any thread and maybe within
  /// this call: without an error the record outlives the process and the machine's power. Does not
  /// block. Errors: `state_not_written`.
  virtual void write(record next, std::function<void(expected<void>)> done) = 0;
};

}  // namespace troupe::control
