#pragma once

#include "messages/base/expected.hpp"

#include <cstdint>
#include <string>

class common_json;

namespace troupe::gguf {

/// The integers that a grammar writes have 16 digits at most.
inline constexpr std::int64_t integer_bound_max = 9'999'999'999'999'999;

/// Whether llama.cpp's conversion holds an answer to all that this one schema says, not looking
/// into those below it. It leaves out without a word what stands beside the keyword that it goes by
/// (see `schema_shape`), bounds of numbers, names in `required` that are no property, most of
/// `allOf`. Those are refused: `invalid_schema`, naming the keyword, the place and what to do.
///
/// What can be written otherwise is: an integer gets both of its bounds, since the conversion is
/// wrong about those that stand alone (it takes 10 for at least 100), and a `pattern` becomes one
/// of the JSON text.
expected<void> hold(common_json& schema, const common_json& root, const std::string& place);

}  // namespace troupe::gguf
