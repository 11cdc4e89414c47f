#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::bench {

/// Seeds `first`, `first` + 1, ... so many of them.
struct seeds {
  std::uint64_t first = 1;
  std::size_t count = 1;
};

/// Prints a promise, what was seen and whether it holds; returns that.
bool promised(const std::string& what, const std::string& seen, const std::string& bar, bool holds);

// Each prints a table, and returns whether all that it promises holds.

/// Two backlogged tenants, by ratio of sizes, weights and places: the gap in service.
bool bench_fairness(const seeds& s);

struct limits_setup {
  double per_minute = 100;      ///< MU
  double burst = 5;             ///< MU
  double floor_per_minute = 5;  ///< MU of each gateway that is cut off
  double request = 0.5;         ///< MU
  seeds by;
};
/// One tenant at four gateways, one of which is cut off for a minute.
bool bench_limits(const limits_setup& s);

struct retry_setup {
  double measured_s = 120;
  std::size_t gateways = 1;
  std::uint32_t engines = 8;  ///< of 16 slots each
  seeds by;
};
/// Retry-After of refusals under steady overload against the time until a shadow would be let in.
bool bench_retry_after(const retry_setup& s);

}  // namespace troupe::bench
