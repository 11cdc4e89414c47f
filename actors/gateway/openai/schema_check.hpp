#pragma once

#include "actors/gateway/openai/json_input.hpp"

namespace troupe::gateway::openai {

/// Of one object in a schema, data included: whoever renders it takes time with the square of it.
inline constexpr std::size_t schema_members_max = 5'000;

/// Whether a JSON schema can be one at all: keywords have the right types, names of types exist,
/// and limits leave room for a value. What only a grammar can find out, the worker finds. Remote
/// references are refused: nothing is ever fetched.
bool check_whole_schema(checker& check, const path& at, json schema);

}  // namespace troupe::gateway::openai
