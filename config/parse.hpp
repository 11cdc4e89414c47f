#pragma once

#include "config/cluster.hpp"
#include "config/problem.hpp"
#include "config/values.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::config {

/// A longer cluster file is refused.
inline constexpr std::size_t cluster_file_bytes_max = 1U << 20U;
/// More problems of one file are not listed, but counted in a last one.
inline constexpr std::size_t problems_max = 100;

/// A checked cluster, or everything that is wrong with the file, in its order.
struct load_result {
  std::optional<cluster> value;
  std::vector<problem> problems;

  explicit operator bool() const { return value.has_value(); }
};

/// The environment of this process. Not to be used while another thread changes it.
environment process_environment();

/// Reads and checks a cluster file. Never throws; each fault is a problem.
load_result load(const std::string& path, const environment& env = process_environment());

/// The same for text in memory. `filename` stands in the problems, and its folder is where relative
/// paths begin.
load_result parse(std::string_view text, const std::string& filename,
                  const environment& env = process_environment());

}  // namespace troupe::config
