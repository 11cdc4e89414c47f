#pragma once

#include "messages/base/expected.hpp"

class common_json;

namespace troupe::gguf {

/// Deeper schemas cost more than any answer that follows them is worth.
inline constexpr int schema_depth_max = 64;
inline constexpr int schema_nodes_max = 20'000;
/// Schemas on the way to one, references followed: llama.cpp's conversion goes there by recursion.
inline constexpr int schema_reach_max = 256;
/// Of `maxLength`, `maxItems` and the like: llama.cpp unrolls repetitions.
inline constexpr int schema_repetitions_max = 2'000;
/// Of all of them in a schema.
inline constexpr std::size_t schema_repetitions_sum_max = 500'000;
/// Of its JSON text: reading an object takes time with the square of its names' number.
inline constexpr std::size_t schema_bytes_max = 256U << 10U;
/// Of a property's or definition's name, and of a reference: llama.cpp matches them by recursion,
/// character by character.
inline constexpr std::size_t schema_name_bytes_max = 256;
inline constexpr std::size_t schema_reference_bytes_max = 1'024;
/// Rules are named by the way to them: of all these names.
inline constexpr std::size_t schema_rule_names_bytes_max = 4U << 20U;
/// Names whose letters and digits are the same get numbers, one after the other: the sum of squares
/// of how many there are of each.
inline constexpr std::size_t schema_same_names_squares_max = 1'000'000;
/// Values of enumerations, branches of `anyOf` and `oneOf`, and types of lists of them, in all:
/// each may be a way of its own on which every token is tried.
inline constexpr std::size_t schema_alternatives_max = 1'000;

/// Optional properties may be there in any combination: a grammar of n of them grows with n², and
/// llama.cpp takes n³ to make it. Of one object, and the sum of squares over all.
inline constexpr std::size_t optional_properties_max = 100;
inline constexpr std::size_t optional_squares_max = 40'000;
/// Characters of a `pattern` once its repetitions are written out; and how often, nesting
/// multiplied, a group of it may be repeated: a group that can be empty in many ways takes for ever
/// to match.
inline constexpr std::size_t pattern_parts_max = 2'000;
inline constexpr std::size_t pattern_group_repeats_max = 64;

/// What has no grammar (`not`, `uniqueItems`, ...) and what the conversion leaves out of one (see
/// `schema_held.hpp`): an answer's schema must not have it, since it would be promised and not
/// held; of a tool's it is a hint to the model. Keywords that JSON schema doesn't know say nothing,
/// nor do formats but dates, times and UUIDs.
enum class unheld_keywords { refuse, allow };

/// What llama.cpp's conversion would take badly (it loops, fills the memory or the stack) or could
/// not be satisfied by any answer: bounds that contradict each other, references in a circle, or to
/// what is no schema, excess. Where what is not held is refused, the schema is written as the
/// conversion takes it exactly: patterns, bounds of integers. Errors: `invalid_schema`, naming the
/// place.
expected<void> check_schema(common_json& schema, unheld_keywords unheld);

}  // namespace troupe::gguf
