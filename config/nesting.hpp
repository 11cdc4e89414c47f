#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::config {

/// Open brackets and braces at one place, and dots outside strings on one line. The schema needs
/// two of each; the TOML parser recurses for each.
inline constexpr std::size_t nesting_max = 16;

/// A place in a text, counted from 1; columns are bytes.
struct text_position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

/// Where a TOML text first nests deeper than `nesting_max`, or names a key of more parts. Such a
/// text must not reach the parser: a dotted key of some hundred thousand parts makes tables that
/// overflow the stack when they are freed. What follows a syntax error may be misread, but the
/// parser never gets there.
std::optional<text_position> find_excessive_nesting(std::string_view text);

}  // namespace troupe::config
