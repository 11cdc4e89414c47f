#pragma once

#include "config/cluster.hpp"

#include <string>
#include <vector>

namespace troupe::config {

/// One fault of a cluster file: where, and what to do about it.
struct problem {
  location where;
  std::string message;
};

/// `file:line:column: message`; without a line where the fault has none (a file that cannot be
/// read, a section that is missing).
std::string to_string(const problem& p);

/// `file:line:column`, or `file`; `default` for a value that is not in the file.
std::string to_string(const location& where);

/// The candidate that a person most likely meant by `word`; empty when none is near enough to be a
/// slip of the keyboard.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace troupe::config
