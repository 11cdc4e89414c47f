#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::console {

/// What came of reading a node's cluster file again.
struct reload_result {
  bool applied = false;
  std::uint64_t generation = 0;  ///< of what the node goes by now
  std::string digest;            ///< the same
  std::string file_digest;       ///< of the file; empty: it has problems
  std::vector<std::string> problems;
};

}  // namespace troupe::console
