#pragma once

#include "messages/base/expected.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::gguf {

/// Groups of a pattern within groups.
inline constexpr int pattern_depth_max = 64;
/// Of `{n}` in a pattern: llama.cpp unrolls repetitions.
inline constexpr int pattern_repetitions_max = 2'000;

/// A schema's `pattern` as one that llama.cpp's conversion takes exactly: a regular expression over
/// the JSON text of a string instead of its value, anchored at both ends, with classes written out.
/// Handed over as it is, the conversion would take `\d` and all that it doesn't know for "any
/// string", and would let `.` write a bare quote.
///
/// As in JSON schema, a pattern without `^` or `$` may stand anywhere in the string. What has no
/// grammar (looking around, back references, `\b`, `\p`, anchors inside) is an error, `pattern`,
/// whose message names the part.
expected<std::string> pattern_of_json_text(std::string_view pattern);

}  // namespace troupe::gguf
