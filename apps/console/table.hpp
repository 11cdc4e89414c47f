#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace troupe::apps::console {

/// A text, or a number, which stands to the right.
using cell = std::variant<std::string, std::int64_t>;

/// What a command shows: to people as columns, to scripts as a list of objects.
struct table {
  std::vector<std::string> columns;
  std::vector<std::vector<cell>> rows;
};

/// Columns as wide as they must be, a line for each row. Control characters are shown as `?`: what
/// comes from the network must not steer a terminal.
std::string to_text(const table& t);
std::string printable(const std::string& text);

}  // namespace troupe::apps::console
