#pragma once

#include "messages/base/expected.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

class common_json;

namespace troupe::gguf {

/// What llama.cpp's conversion makes of a schema: it looks at keywords in this order of precedence,
/// and leaves out, without a word, whatever else stands beside the one that it goes by.
enum class schema_shape {
  reference,    ///< `$ref`
  any_of,       ///< `oneOf` (an answer follows one branch; that no other allows it isn't held) or
                ///< `anyOf`
  types,        ///< a list of types: one alternative each, of the same keywords
  constant,     ///< `const`
  enumeration,  ///< `enum`
  object,       ///< closed unless `additionalProperties` says otherwise, or nothing is said
  all_of,       ///< of objects or of enumerations; anything else in it is left out
  array,
  string,
  integer,
  number,
  simple,  ///< true, false, null
  any,     ///< nothing is said that the conversion knows
  unknown  ///< a type that doesn't exist, which it refuses
};

schema_shape shape_of(const common_json& schema);
/// With this type instead of the schema's own: of the alternatives of `types`.
schema_shape shape_of(const common_json& schema, std::string_view type);

/// The keyword that an `any_of` goes by.
const char* branches_keyword(const common_json& schema);

/// Their values are objects whose keys are names and whose values are schemas.
inline constexpr std::array<std::string_view, 3> maps_of_schemas{"properties", "$defs",
                                                                 "definitions"};
/// Their values are data, which nobody checks.
inline constexpr std::array<std::string_view, 6> data_keywords{"enum",    "const",    "default",
                                                               "example", "examples", "required"};

template <class List>
bool among(const List& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

/// The schema that a reference leads to, followed as the conversion does. Null: it leads nowhere,
/// or into data, where no schema has been checked.
const common_json* find_schema(const common_json& root, std::string_view reference);

/// `schema`, or what its references lead to in the end; null: nothing, or they lead in a circle.
const common_json* behind_references(const common_json& root, const common_json& schema);

/// Whether the conversion holds strings to this `format`; others say what a string is for.
bool is_held_format(std::string_view format);

/// `invalid_schema` of the answer's schema, with the place, which may be long.
error invalid_schema_at(std::string_view place, std::string_view why);

}  // namespace troupe::gguf
